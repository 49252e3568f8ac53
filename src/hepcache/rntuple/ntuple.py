"""An ntuple that is open for reading, in an object store or in a ROOT file."""

from __future__ import annotations

import difflib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import awkward as ak

from hepcache.errors import ObjectStoreError, UnknownColumnError
from hepcache.objectstore import FileStore, Store
from hepcache.rntuple.arrays import column_numbers, layouts
from hepcache.rntuple.metadata import Metadata, file_metadata, load_metadata
from hepcache.rntuple.pagelist import Cluster
from hepcache.rntuple.read import Columns, ReadOptions
from hepcache.rntuple.root_on_daos import ntuple_store


@dataclass(frozen=True, slots=True)
class Reading:
    """Fields of an entry range that are being fetched."""

    forms: Mapping[str, tuple[ak.forms.Form, tuple[str, ...]]]
    clusters: Sequence[Cluster]
    low: int
    high: int
    columns: Columns

    def cancel(self) -> None:
        """Stop fetching, if it is not done."""
        self.columns.cancel()

    def result(self) -> dict[str, ak.contents.Content]:
        """Return the fields when they are there."""
        columns = self.columns.result()
        first = self.clusters[0].first_entry if self.clusters else self.low
        length = sum(cluster.entries for cluster in self.clusters)
        arrays = layouts([form for form, _ in self.forms.values()], columns, length)
        found = {}
        for (name, (_, path)), array in zip(self.forms.items(), arrays, strict=True):
            for step in path:
                array = array[step]
            found[name] = array[self.low - first : self.high - first]
        return found


class NTuple:
    """An ntuple that is open for reading.

    Parameters
    ----------
    store
        The store of its objects.
    metadata
        The ntuple's envelopes, if the caller has them.
    options
        How pages are fetched.

    Raises
    ------
    ObjectStoreError
        The store fails, or there is no ntuple that can be read.

    Notes
    -----
    Several threads can use it.
    """

    def __init__(
        self, store: Store, metadata: Metadata | None = None, options: ReadOptions | None = None
    ) -> None:
        self.store = ntuple_store(store)
        self.metadata = metadata or load_metadata(self.store)
        self.options = options or ReadOptions()

    @property
    def name(self) -> str:
        """The ntuple's name."""
        return self.metadata.schema.name

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.metadata.entries

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Cluster boundaries, from 0 to the number of entries."""
        return self.metadata.boundaries

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return self.metadata.schema.names

    def __len__(self) -> int:
        return self.entries

    def layouts(self, names: Sequence[str], low: int, high: int) -> dict[str, ak.contents.Content]:
        """Return fields of the entries ``low`` to ``high``.

        Parameters
        ----------
        names
            Names of fields; a dot separates a field from the field that contains it.
        low, high
            Entry range.

        Raises
        ------
        UnknownColumnError
            There is no such field.
        ObjectStoreError
            The store fails, or an object is missing or damaged.
        """
        return self.begin(names, low, high).result()

    def stored_bytes(self, names: Sequence[str], low: int, high: int) -> int:
        """Return the bytes of all pages that hold fields of an entry range."""
        numbers = {number for name in names for number in column_numbers(self.form(name)[0])}
        clusters = self.metadata.clusters[slice(*self._cluster_range(low, high))]
        lists = (
            cluster.columns[alternative]
            for number in numbers
            for alternative in self.metadata.schema.columns[number].alternatives
            for cluster in clusters
            if alternative < len(cluster.columns)
        )
        # Equal pages are stored once.
        places = {
            (number, offset): nbytes
            for pages in lists
            for number, offset, nbytes in zip(
                pages.objects.tolist(), pages.offsets.tolist(), pages.nbytes.tolist(), strict=True
            )
        }
        return sum(places.values())

    def begin(self, names: Sequence[str], low: int, high: int) -> Reading:
        """Begin to fetch fields of the entries ``low`` to ``high``; see :meth:`layouts`."""
        forms = {name: self.form(name) for name in names}
        clusters = self._cluster_range(low, high)
        numbers = dict.fromkeys(
            number for form, _ in forms.values() for number in column_numbers(form)
        )
        columns = Columns(self.store, self.metadata, numbers, *clusters, self.options)
        return Reading(forms, self.metadata.clusters[slice(*clusters)], low, high, columns)

    def arrays(
        self, names: Sequence[str] | None = None, start: int = 0, stop: int | None = None
    ) -> ak.Array:
        """Return fields as an array of records, as uproot's ``arrays`` does.

        Parameters
        ----------
        names
            Names of fields; ``None`` for all top-level ones.
        start, stop
            Entry range; ``None`` for the end.

        Raises
        ------
        UnknownColumnError, ObjectStoreError
            As for :meth:`layouts`.
        """
        wanted = list(self.names if names is None else names)
        stop = self.entries if stop is None else min(stop, self.entries)
        start = min(max(start, 0), stop)
        return _record(self.layouts(wanted, start, stop), stop - start)

    def iterate(
        self, names: Sequence[str] | None = None, entries: int = 100_000, start: int = 0
    ) -> Iterator[ak.Array]:
        """Yield arrays of whole clusters, while the next ones are fetched.

        Parameters
        ----------
        names
            Names of fields; ``None`` for all top-level ones.
        entries
            Entries of an array, as far as clusters allow.
        start
            First entry.

        Raises
        ------
        UnknownColumnError, ObjectStoreError
            As for :meth:`layouts`.
        """
        wanted = list(self.names if names is None else names)
        ahead: Reading | None = None
        steps = list(self._steps(start, entries))
        try:
            for index, (low, high) in enumerate(steps):
                current = ahead or self.begin(wanted, low, high)
                following = steps[index + 1 : index + 2]
                ahead = self.begin(wanted, *following[0]) if following else None
                yield _record(current.result(), high - low)
        finally:
            if ahead is not None:
                ahead.cancel()

    def _steps(self, start: int, entries: int) -> Iterator[tuple[int, int]]:
        inner = [boundary for boundary in self.boundaries if boundary > start]
        while inner:
            # At least one cluster, and as many as there is room for.
            last = max(bisect_right(inner, start + entries) - 1, 0)
            yield start, inner[last]
            start, inner = inner[last], inner[last + 1 :]

    def _cluster_range(self, start: int, stop: int) -> tuple[int, int]:
        starts = [cluster.first_entry for cluster in self.metadata.clusters]
        if start >= stop:
            return 0, 0
        return bisect_right(starts, start) - 1, bisect_left(starts, stop)

    def form(self, name: str) -> tuple[ak.forms.Form, tuple[str, ...]]:
        """Return a field's form, and the names that lead to it in the form.

        Raises
        ------
        UnknownColumnError
            There is no such field.
        ObjectStoreError
            It is of a kind that can't be read.
        """
        try:
            return self.metadata.schema.form(name)
        except KeyError:
            near = difflib.get_close_matches(name, self.names, 3)
            raise UnknownColumnError(name, self.store.uri, near) from None
        except NotImplementedError as error:
            # uproot's words are all of the field's record.
            problem = f"field {name!r}: {self.metadata.schema.streamed(name)}"
            raise ObjectStoreError(self.store.uri, "", problem) from error

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_ntuple(uri: str, *, options: ReadOptions | None = None, **store_options: Any) -> NTuple:
    """Open the ntuple at the URI of an object store.

    Parameters
    ----------
    uri
        As for :func:`~hepcache.objectstore.open_store`.
    options
        How pages are fetched.
    **store_options
        Options of the store.

    Raises
    ------
    ConfigurationError, ObjectStoreError, ImportError
        As :func:`~hepcache.objectstore.open_store` and :class:`NTuple`.
    """
    store = ntuple_store(uri, **store_options)
    try:
        return NTuple(store, options=options)
    except BaseException:
        store.close()
        raise


def open_in_file(path: str, tree: str, options: ReadOptions | None = None) -> NTuple:
    """Open an RNTuple in a local ROOT file.

    Parameters
    ----------
    path, tree
        The file, and the ntuple's name in it.
    options
        How pages are fetched.

    Raises
    ------
    ObjectStoreError
        The file is missing or damaged.
    """
    store = FileStore(path)
    try:
        return NTuple(store, file_metadata(store, path, tree), options)
    except BaseException:
        store.close()
        raise


def _record(layouts: dict[str, ak.contents.Content], length: int) -> ak.Array:
    contents, names = list(layouts.values()), list(layouts)
    return ak.Array(ak.contents.RecordArray(contents, names, length))
