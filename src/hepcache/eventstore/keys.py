"""How items of an event store are named: keys, addresses, references and URLs.

A key is one byte that names the database, the container's key (the dataset's UUID followed by
big-endian run, subrun and event numbers) and what the database adds. Bytes compare as the
numbers do, so one ordered scan lists a container. Keys, and with them the shard, never depend
on a network address: a server that comes back elsewhere serves the same shard (the model is
that of HEPnOS, Paterno et al., "HEPnOS: a specialized data service for high energy physics
analysis", 2023, section III).
"""

from __future__ import annotations

import json
import operator
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, SupportsIndex
from urllib.parse import quote, unquote

import xxhash

from hepcache.errors import ConfigurationError

# The databases: first byte of every key.
DATASET: Final = b"d"  # parent's UUID, name -> UUID
RUN: Final = b"r"  # UUID, run -> nothing
SUBRUN: Final = b"s"  # UUID, run, subrun -> nothing
EVENTS: Final = b"e"  # subrun key, first event -> numbers of consecutive events
VALUE: Final = b"v"  # level, container key, label, type -> a product of a container
COLUMN: Final = b"c"  # subrun key, label, type, column, first event -> a column of a row group
SINGLE: Final = b"o"  # subrun key, label, type, event -> one product, not yet in a row group
QUEUE: Final = b"q"  # name, 0, number -> a value that waits; without number -> the description
SCHEMA: Final = b"t"  # type identity -> its description
META: Final = b"m"

LOCATION: Final = META + b"entry"
"""Which servers have a shard, as the server knows that keeps this copy of it."""

ROOT: Final = bytes(16)  # the parent of the top datasets
LARGEST_NUMBER: Final = 2**64 - 1
SUBRUN_BYTES: Final = 32  # of a subrun's key: UUID, run, subrun
_LONGEST_NAME_BYTES = 255  # keeps every key below the 511 bytes that LMDB allows


def check_number(number: SupportsIndex, what: str = "number") -> int:
    """Return a run, subrun or event number as an ``int``.

    Raises ``ConfigurationError``: it is no integer, or not in 0..2**64-1.
    """
    if type(number) is int and 0 <= number <= LARGEST_NUMBER:
        return number
    if isinstance(number, bool):
        raise ConfigurationError(what, "an integer", number)
    try:
        value = operator.index(number)
    except TypeError:
        raise ConfigurationError(what, "an integer", number) from None
    if not 0 <= value <= LARGEST_NUMBER:
        raise ConfigurationError(what, "an integer in 0..2**64-1", value)
    return value


def number_bytes(number: SupportsIndex, what: str = "number") -> bytes:
    """Return a number as it stands in keys: 8 bytes, big-endian."""
    return check_number(number, what).to_bytes(8, "big")


def check_name(name: str, what: str = "name") -> str:
    """Return a name of a dataset or a label of a product.

    Raises ``ConfigurationError``: it is empty, longer than 255 bytes, no valid Unicode, or
    contains ``/`` or a control character.
    """
    expected = "UTF-8 text of 1 to 255 bytes without '/' and control characters"
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigurationError(what, expected, name)
    if not name.isprintable() and any(unicodedata.category(letter) == "Cc" for letter in name):
        raise ConfigurationError(what, expected, name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(what, expected, name) from None
    if size > _LONGEST_NAME_BYTES:
        raise ConfigurationError(what, expected, name)
    return name


@lru_cache(4096)
def name_bytes(name: str, what: str = "name") -> bytes:
    """Return a checked name as it stands in keys."""
    return check_name(name, what).encode()


def split_path(path: str) -> list[str]:
    """Return the checked components of a dataset's path.

    >>> split_path("nova/prod5")
    ['nova', 'prod5']
    """
    if not isinstance(path, str):
        raise ConfigurationError("dataset", "a path such as 'nova/prod5'", path)
    return [check_name(part, "dataset") for part in path.strip("/").split("/")]


def shard_of(container: bytes, number_of_shards: int) -> int:
    """Return the shard of what a container lists, and of its products.

    The number of shards is the one that the store was made with; it never changes.
    """
    return int(xxhash.xxh3_64_intdigest(container) % number_of_shards)


def after(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that begin with a prefix; None if there is none.

    >>> after(b"ab")
    b'ac'
    """
    shortened = prefix.rstrip(b"\xff")
    return shortened[:-1] + bytes([shortened[-1] + 1]) if shortened else None


def describe_key(key: bytes) -> str:
    """Return what a key stands for, with the dataset's UUID where its path belongs.

    >>> describe_key(SUBRUN + bytes(15) + b"U" + bytes(7) + b"1" + bytes(7) + b"2")
    'subrun 00000000000000000000000000000055/49/50'
    """
    database, rest = key[:1], key[1:]
    if database == DATASET:
        return f"dataset {rest[16:].decode(errors='replace')!r} of {rest[:16].hex()}"
    if database in (RUN, SUBRUN):
        return f"{'run' if database == RUN else 'subrun'} {Address.from_key(rest)}"
    if database == VALUE:
        container, named = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
        return f"product {_label(named)} of {Address.from_key(container)}"
    if database == QUEUE:
        return f"queue {_label(rest)}"
    if database in (EVENTS, COLUMN, SINGLE):
        address, first = Address.from_key(rest[:SUBRUN_BYTES]), int.from_bytes(rest[-8:], "big")
        if database == EVENTS:
            return f"events of {address}, from {first}"
        label = _label(rest[SUBRUN_BYTES:])
        events = f"events from {first}" if database == COLUMN else f"event {first}"
        return f"product {label} of {address}, {events}"
    return f"key {key.hex()}"


def _label(key: bytes) -> str:
    return repr(key.partition(b"\0")[0].decode(errors="replace"))


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A dataset, run, subrun or event of a store: its descriptor.

    Attributes
    ----------
    dataset
        The dataset's UUID, as 32 hexadecimal digits; it never changes.
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
        return len(self._numbers)

    @property
    def key(self) -> bytes:
        """The container's key."""
        return bytes.fromhex(self.dataset) + b"".join(map(number_bytes, self._numbers))

    @property
    def _numbers(self) -> list[int]:
        numbers = (self.run, self.subrun, self.event)
        return [number for number in numbers if number is not None]

    def __str__(self) -> str:
        return "/".join([self.dataset, *map(str, self._numbers)])

    @classmethod
    def from_key(cls, key: bytes) -> Address:
        """Return the address of a container's key."""
        numbers = [int.from_bytes(key[at : at + 8], "big") for at in range(16, len(key), 8)]
        return cls(key[:16].hex(), *numbers)


@dataclass(frozen=True, slots=True)
class Ref:
    """A lazy reference to a product, or to a range of its rows.

    ``store.load(ref)`` reads it. A Ref can itself be a product, and can be sent to other
    processes.

    Attributes
    ----------
    address
        The container.
    label
        The product's label.
    identity
        The type's identity in hexadecimal digits, or ``""`` for the only type of this label.
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
        address = self.address
        values = [address.dataset, address.run, address.subrun, address.event]
        return json.dumps([*values, self.label, self.identity, self.start, self.stop]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Ref:
        """Return the reference that :meth:`to_bytes` wrote."""
        dataset, run, subrun, event, *rest = json.loads(data)
        return cls(Address(dataset, run, subrun, event), *rest)


_SCHEME = "events+"


@dataclass(frozen=True, slots=True)
class DatasetUrl:
    """The URL of a dataset of a store, or of one run or subrun of it, for filesets.

    Examples
    --------
    >>> DatasetUrl.parse("events+file:///ssd/nova#nova/prod5:43")
    DatasetUrl(store='file:///ssd/nova', dataset='nova/prod5', numbers=(43,))
    >>> str(DatasetUrl("file:///ssd/nova", "nova/prod5"))
    'events+file:///ssd/nova#nova/prod5'
    """

    store: str
    dataset: str
    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> DatasetUrl:
        """Return the parts of a URL.

        Raises
        ------
        ConfigurationError
            The URL has another form.
        """
        store, found, where = text.removeprefix(_SCHEME).partition("#")
        path, _, numbers = where.partition(":")
        parts = numbers.split("/") if numbers else []
        if (
            not (text.startswith(_SCHEME) and found and path)
            or store == "mem://"
            or len(parts) > 2
            or not all(part.isdecimal() for part in parts)
        ):
            expected = "events+file:///path#dataset, with :run or :run/subrun behind it for less"
            raise ConfigurationError("events", expected, text)
        return cls(store, unquote(path), tuple(map(int, parts)))

    def __str__(self) -> str:
        numbers = ":" + "/".join(map(str, self.numbers)) if self.numbers else ""
        return f"{_SCHEME}{self.store}#{quote(self.dataset)}{numbers}"
