"""Values: what a fileset asks for, and what is known of each of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

from rich.table import Table

from hepcache.display import card, text
from hepcache.errors import BadFilesetError


@dataclass(frozen=True, slots=True)
class FileSpec:
    """One file of a dataset, as the user names it.

    ``tree``: the tree's name; ``None`` where the fileset gives none.
    ``preload``: columns that are read at once when a chunk begins (coffea's ``preload``).
    ``replicas``: other places of the same file, in the order in which they are tried.
    """

    dataset: str
    path: str
    tree: str | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False)
    preload: frozenset[str] | None = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What is known of one tree of one file.

    ``tree``: the tree's name inside the file, without a cycle number; only a tree of an old cycle
    that was asked for by number keeps it.
    ``entries``: number of entries.
    ``clusters``: cluster boundaries, from 0 to ``entries``, both included; ``(0,)`` for a tree
    without entries.
    ``size``: size of the file in bytes.
    ``validator``: changes whenever the file is written: size and modification time of a path, size
    and ETag or last-modified of a URL.
    ``tag``: 16 hexadecimal digits that change when the content changes, though UUID or path do
    not; the same for a copy and after ``touch``.
    ``fingerprint``: 16 hexadecimal digits: the ordered list of branches with their types, counters
    and titles. Files with equal fingerprints have equal forms.
    ``replaces``: UUID and tag of the content that the path held before, joined by a hyphen; ``""``
    where no other is known.
    ``places``: where the file lies, in the order in which these are tried; ``validator`` is of the
    first. Empty where it lies at ``path`` alone.
    ``failures``: places that were asked in vain before the first of ``places``, with the reasons.
    """

    path: str
    tree: str
    uuid: str
    entries: int
    clusters: tuple[int, ...]
    size: int
    validator: str
    tag: str
    fingerprint: str
    replaces: str = ""
    places: tuple[str, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()


_COLUMNS = ("dataset", "files", "tree", "entries")


class Fileset(Sequence[FileSpec]):
    """Files of one or more datasets, in order.

    Parameters
    ----------
    specs
        The files.
    entries
        Number of entries by ``(path, tree)``, as far as it is known; only
        shown, never relied upon.
    """

    __slots__ = ("_entries", "_specs")

    def __init__(
        self,
        specs: Iterable[FileSpec],
        *,
        entries: Mapping[tuple[str, str | None], int] | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._entries = dict(entries or {})

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, in order of appearance."""
        return tuple(dict.fromkeys(spec.dataset for spec in self._specs))

    def known(self, found: Iterable[tuple[FileSpec, FileRecord]]) -> Fileset:
        """Return the same fileset, showing the entries the catalogue has found."""
        entries = {(spec.path, spec.tree): record.entries for spec, record in found}
        return Fileset(self._specs, entries=self._entries | entries)

    def to_coffea(self, *, treename: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the fileset as coffea's ``Runner`` takes it.

        Parameters
        ----------
        treename
            Tree of files that name none. Hand it over here, not to the
            ``Runner``, for which it comes before the files' own.

        Returns
        -------
        dict
            Dataset to ``files`` and, where there are any, ``treename``,
            ``metadata`` and ``preload``. Files are a list with one tree name,
            or a dict of path to tree name where the names differ. Replicas are
            left out, for which coffea has no form.

        Raises
        ------
        BadFilesetError
            coffea has no form for it: two trees of one file in one dataset, or
            files of one dataset with different metadata.
        """
        out: dict[str, dict[str, Any]] = {}
        for dataset in self.datasets:
            specs = [
                replace(spec, tree=spec.tree or treename)
                for spec in self._specs
                if spec.dataset == dataset
            ]
            trees = {spec.tree for spec in specs}
            _check_uniform(dataset, specs)
            entry: dict[str, Any] = {}
            if len(trees) == 1:
                entry["files"] = [spec.path for spec in specs]
                if specs[0].tree is not None:
                    entry["treename"] = specs[0].tree
            else:
                entry["files"] = {spec.path: spec.tree for spec in specs}
                if len(entry["files"]) < len(specs) or None in trees:
                    raise BadFilesetError(
                        "coffea takes one tree for each file of a dataset; make two datasets",
                        dataset,
                    )
            if specs[0].metadata is not None:
                entry["metadata"] = dict(specs[0].metadata)
            if specs[0].preload is not None:
                entry["preload"] = sorted(specs[0].preload)
            out[dataset] = entry
        return out

    @overload
    def __getitem__(self, index: int) -> FileSpec: ...
    @overload
    def __getitem__(self, index: slice) -> Fileset: ...
    def __getitem__(self, index: int | slice) -> FileSpec | Fileset:
        if isinstance(index, slice):
            return Fileset(self._specs[index], entries=self._entries)
        return self._specs[index]

    def __iter__(self) -> Iterator[FileSpec]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fileset) and self._specs == other._specs

    def __hash__(self) -> int:
        return hash(self._specs)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """Return dataset, files, trees and entries, as text, one row per dataset."""
        files = Counter(spec.dataset for spec in self._specs)
        rows = []
        for dataset in self.datasets:
            specs = [spec for spec in self._specs if spec.dataset == dataset]
            trees = ", ".join(dict.fromkeys(spec.tree or "" for spec in specs))
            counts = [self._entries.get((spec.path, spec.tree)) for spec in specs]
            known = [count for count in counts if count is not None]
            entries = f"{sum(known):,}" if known else ""
            if 0 < len(known) < len(counts):
                entries += f" in {len(known)} files"
            rows.append((dataset, f"{files[dataset]:,}", trees, entries))
        return rows

    def __rich__(self) -> Table:
        table = Table(title=self._title(), title_justify="left")
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in ("files", "entries") else "left")
        for row in self._rows():
            table.add_row(*row)
        return table

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return card(self._title(), columns=_COLUMNS, rows=self._rows())

    def _title(self) -> str:
        datasets, files = len(self.datasets), len(self)
        return (
            f"Fileset: {datasets} {'dataset' if datasets == 1 else 'datasets'}, "
            f"{files:,} {'file' if files == 1 else 'files'}"
        )


def _check_uniform(dataset: str, specs: list[FileSpec]) -> None:
    first = specs[0]
    if any((s.metadata, s.preload) != (first.metadata, first.preload) for s in specs):
        raise BadFilesetError(
            "coffea takes one metadata and one preload for all files of a dataset; "
            "make two datasets",
            dataset,
        )
