"""What a reader needs of an origin: the tree it reads, and whole segments of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hepcache.columns.column import Column
from hepcache.columns.tablefile import BlobStore
from hepcache.columns.transport import Range
from hepcache.telemetry import ReadLog

__all__ = ["NothingAhead", "Source", "TreeRef"]


@dataclass(frozen=True, slots=True)
class TreeRef:
    """One tree of one file, as the catalogue knew it when the run began.

    Attributes
    ----------
    path
        Where the file lives: a path or a URL.
    tree
        Name of the tree in the file.
    uuid
        The file's UUID.
    tag
        Hash that changes when the tree's content does.
    validator
        The file's freshness token; ``""`` when it is not known.
    boundaries
        Segment boundaries: ``0``, ..., number of entries.
    options
        Options for ``uproot.open``.
    replaces
        UUID and tag of the content that the path held before, joined by a
        hyphen; ``""`` where no other is known.
    store
        Where the host keeps what it knows of the tree, or ``None``.
    """

    path: str
    tree: str
    uuid: str
    tag: str
    validator: str
    boundaries: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    replaces: str = ""
    store: BlobStore | None = field(default=None, compare=False, repr=False)

    @property
    def content(self) -> str:
        """What tells the file's content from all others."""
        return f"{self.uuid}-{self.tag}"


class Source(Protocol):
    """Reads columns at the origin, and fetches ahead what will be read."""

    @property
    def tree(self) -> Any:
        """The tree as uproot describes it, as far as what is read needs it."""

    @property
    def whole_tree(self) -> Any:
        """The tree as uproot has it, parsed when it is asked for."""

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``.

        Parameters
        ----------
        names
            Names of columns.
        start, stop
            Entry range, normally one whole segment.
        log
            Where the bytes and seconds are counted.

        Raises
        ------
        UnknownColumnError
            A name is not in the tree.
        OriginError
            The origin failed, or the file is not the one the catalogue knows.
        """
        ...

    def counter(self, name: str) -> str | None:
        """Return the column that holds the lengths of a column's lists, if one does."""
        ...

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        ...

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return what :meth:`read` will need, to be expected; the second number is bytes."""
        ...

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch what will be read."""

    def await_few(self) -> None:
        """Return when little of what was expected is still to come."""

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop what was expected and not read."""

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""

    def close(self) -> None:
        """Let go of the origin."""


class NothingAhead:
    """The part of a :class:`Source` that fetches nothing before it is read."""

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:  # noqa: ARG002
        """Return nothing."""
        return []

    def expect(self, ranges: Sequence[Range]) -> None:
        """Do nothing."""

    def await_few(self) -> None:
        """Do nothing."""

    def forget(self, ranges: Sequence[Range]) -> None:
        """Do nothing."""
