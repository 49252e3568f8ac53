"""What a reader needs of an origin: the tree it reads, and whole segments of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Protocol

from hepcache.errors import UnknownColumnError
from hepcache.formats.column import Column
from hepcache.io.ranges import Range
from hepcache.telemetry import ReadLog


class BlobStore(Protocol):
    """Where small metadata is kept, such as the cache."""

    def blob_get(self, kind: str, name: str) -> bytes | None:
        """Return what was kept, or ``None``."""
        ...

    def blob_put(self, kind: str, name: str, data: bytes) -> bool:
        """Keep something; tell whether that was possible."""
        ...


@dataclass(frozen=True, slots=True)
class TreeRef:
    """One tree of one file, as the catalogue knew it when the run began.

    ``validator``: the file's freshness token; ``""`` when it is not known.
    ``boundaries``: segment boundaries: ``0``, ..., number of entries.
    ``options``: options for ``uproot.open``.
    ``replaces``: UUID and tag of the content that the path held before, joined by a hyphen; ``""``
    where no other is known.
    ``store``: where the host keeps what it knows of the tree, or ``None``.
    ``places``: where the file lies, in the order in which these are tried; ``validator`` is of the
    first. Empty where it lies at ``path`` alone.
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
    places: tuple[str, ...] = field(default=(), compare=False)

    @property
    def place(self) -> str:
        """The place of which ``validator`` is."""
        return self.places[0] if self.places else self.path

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

        ``log``: where the bytes and seconds are counted.
        Raises ``UnknownColumnError``: a name is not in the tree.
        Raises ``OriginError``: the origin failed, or the file is not the one the catalogue knows.
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
        """Close the origin."""


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


class ColumnTree:
    """The columns of a file that is no ROOT file; it answers what coffea asks of a tree.

    ``columns``: by name; they answer what is asked of branches, and of what interprets these.
    """

    def __init__(
        self, path: str, title: str, num_entries: int, columns: Mapping[str, Any]
    ) -> None:
        self.path, self.title, self.num_entries = path, title, num_entries
        self.columns = columns

    def keys(self) -> list[str]:
        """Return the names of all columns."""
        return list(self.columns)

    def typenames(self) -> dict[str, str]:
        """Return the names of the types of all columns."""
        return {name: column.typename for name, column in self.columns.items()}

    def iteritems(
        self,
        filter_name: str | Sequence[str] | Callable[[str], bool] | None = None,
        **_others: Any,
    ) -> Iterator[tuple[str, Any]]:
        """Yield the name of every column, and the column, as uproot's trees do."""
        patterns = [filter_name] if isinstance(filter_name, str) else filter_name
        for name, column in self.columns.items():
            if callable(patterns):
                passes = patterns(name)
            else:
                passes = any(fnmatchcase(name, pattern) for pattern in patterns or ["*"])
            if passes:
                yield name, column

    def own_form(self) -> dict[str, Any] | None:
        """Return the form that coffea makes of such files, if it reads them itself."""
        return None

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            near = get_close_matches(name, self.columns, 3)
            raise UnknownColumnError(name, self.path, near)
        return self.columns[name]


def raise_uproots(tree: Any, names: Iterable[str], start: int, stop: int, found: str) -> None:
    """Raise what uproot makes of damaged columns: the type of error that users handle.

    ``names``, ``start``, ``stop``: the columns, and the entries in which our own checks have found
    damage.
    """
    for name in names:
        try:
            tree[name].array(entry_start=start, entry_stop=stop)
        except Exception as error:
            error.add_note(found)
            raise
