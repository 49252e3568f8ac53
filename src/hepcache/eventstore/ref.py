"""Where a container or a product is, as a value that can be stored and sent."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hepcache.errors import ConfigurationError

__all__ = ["Address", "Ref"]


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A dataset, run, subrun or event of a store: its descriptor.

    Attributes
    ----------
    dataset
        The dataset's UUID, as 32 hexadecimal digits; it survives renaming of nothing and
        never changes.
    run, subrun, event
        Numbers; None above the level.
    """

    dataset: str
    run: int | None = None
    subrun: int | None = None
    event: int | None = None

    @property
    def level(self) -> int:
        """0 for a dataset, 1 a run, 2 a subrun, 3 an event."""
        return sum(one is not None for one in (self.run, self.subrun, self.event))

    @property
    def key(self) -> bytes:
        """The container's key."""
        numbers = [one for one in (self.run, self.subrun, self.event) if one is not None]
        return bytes.fromhex(self.dataset) + b"".join(one.to_bytes(8, "big") for one in numbers)

    @classmethod
    def from_key(cls, key: bytes) -> Address:
        """Return the address of a container's key."""
        numbers = [int.from_bytes(key[at : at + 8], "big") for at in range(16, len(key), 8)]
        return cls(key[:16].hex(), *numbers)


@dataclass(frozen=True, slots=True)
class Ref:
    """A lazy reference to a product, or to a range of its rows.

    ``store.load(ref)`` reads it. A Ref can be a product itself, and goes to other
    processes as it is.

    Attributes
    ----------
    address
        The container.
    label
        The product's label.
    identity
        The type's identity in hexadecimal digits, or ``""`` for the only type there.
    start, stop
        Rows of the product, as in a slice.
    """

    address: Address
    label: str
    identity: str = ""
    start: int | None = None
    stop: int | None = None

    def __getitem__(self, rows: slice) -> Ref:
        """Return a reference to a range of this product's rows."""
        if rows.step not in (None, 1) or self.start is not None or self.stop is not None:
            raise ConfigurationError("rows", "one slice with step 1", rows)
        return Ref(self.address, self.label, self.identity, rows.start, rows.stop)

    def to_bytes(self) -> bytes:
        """Return the reference as JSON."""
        a = self.address
        values = [a.dataset, a.run, a.subrun, a.event]
        return json.dumps([*values, self.label, self.identity, self.start, self.stop]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Ref:
        """Return the reference that :meth:`to_bytes` wrote."""
        dataset, run, subrun, event, *rest = json.loads(data)
        return cls(Address(dataset, run, subrun, event), *rest)
