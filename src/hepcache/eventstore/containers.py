"""Datasets and runs, as ordered mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hepcache.errors import MissingItemError
from hepcache.eventstore.dataseturl import DatasetUrl
from hepcache.eventstore.keys import (
    DATASET,
    RUN,
    SUBRUN,
    after,
    name_bytes,
    number_bytes,
    split_path,
)
from hepcache.eventstore.numbered import Listed
from hepcache.eventstore.operations import PutItems, RemovePrefixes
from hepcache.eventstore.subrun import SubRun

if TYPE_CHECKING:
    from hepcache.eventstore.store import Store

__all__ = ["Dataset", "Datasets", "Run"]


class Datasets(MutableMapping[str, "Dataset"]):
    """The datasets of a dataset, or of the store, by name in the order of their bytes."""

    def __init__(self, store: Store, parent: bytes, path: str) -> None:
        self._store, self._parent, self._path = store, parent, path

    def _key(self, name: str) -> bytes:
        return DATASET + self._parent + name_bytes(name, "dataset")

    def _named(self, name: str) -> str:
        return f"{self._path}/{name}" if self._path else name

    def __getitem__(self, name: str) -> Dataset:
        found = self._store.shard(self._parent).get(self._key(name))
        if found is None:
            raise MissingItemError(
                f"dataset {name!r}", self._path or self._store.url, self._near(name)
            )
        return Dataset(self._store, found, self._named(name))

    def _near(self, name: str) -> list[str]:
        from difflib import get_close_matches

        names = list(self)
        return get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]

    def create(self, name: str) -> Dataset:
        """Return a dataset, made where missing."""
        key = self._key(name)
        item = PutItems(((key, uuid4().bytes),), lenient=True)
        self._store.apply(self._parent, [item])
        made = self._store.shard(self._parent).get(key)
        assert made is not None
        return Dataset(self._store, made, self._named(name))

    def __setitem__(self, name: str, products: Mapping[Any, Any]) -> None:
        self.create(name).products.update(products)

    def __delitem__(self, name: str) -> None:
        self[name].clear_all()
        self._store.apply(self._parent, [RemovePrefixes((self._key(name),), exact=True)])
        self._store.forget(b"\xff", self._named(name))

    def __iter__(self) -> Iterator[str]:
        prefix = DATASET + self._parent
        for key in self._store.shard(self._parent).keys(prefix, after(prefix)):
            yield key[17:].decode()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Dataset(Listed["Run"]):
    """A dataset: runs by number, and nested datasets by name.

    Attributes
    ----------
    store
        The store.
    key
        The UUID.
    path
        The path from the store.
    """

    _what, _database = "run", RUN

    @property
    def datasets(self) -> Datasets:
        """The nested datasets, by name."""
        return Datasets(self.store, self.key, self.path)

    @property
    def uuid(self) -> str:
        """The dataset's UUID in hexadecimal digits."""
        return self.key.hex()

    @property
    def url(self) -> str:
        """What a fileset names where it would name a file: coffea processors run over it."""
        return str(DatasetUrl(self.store.url, self.path))

    def __getitem__(self, number: Any) -> Any:
        """Return a run by its number, or a nested dataset by its path."""
        if isinstance(number, str):
            here: Dataset = self
            for part in split_path(number):
                here = here.datasets[part]
            return here
        return super().__getitem__(number)

    def at(self, number: int) -> Run:
        """Return the handle of a run, without looking whether it exists."""
        return Run(self.store, self.key + number_bytes(number, "run"), f"{self.path}/{number}")

    def clear_all(self) -> None:
        """Remove all runs, nested datasets and products of this dataset."""
        for name in list(self.datasets):
            del self.datasets[name]
        self.clear()
        self.products.clear()

    def subruns(self) -> Iterator[SubRun]:
        """Iterate over all subruns of all runs, in order."""
        for number in self:
            run = self.at(number)
            for inner in run:
                yield run.at(inner)


class Run(Listed["SubRun"]):
    """A run: subruns by number."""

    _what, _database = "subrun", SUBRUN

    @property
    def number(self) -> int:
        """The run's number."""
        return int.from_bytes(self.key[16:24], "big")

    def at(self, number: int) -> SubRun:
        """Return the handle of a subrun, without looking whether it exists."""
        return SubRun(
            self.store, self.key + number_bytes(number, "subrun"), f"{self.path}/{number}"
        )

    def clear_all(self) -> None:
        """Remove all subruns and products of this run."""
        self.clear()
        self.products.clear()
