"""What the catalogue asks of events of a store, as it asks of a file.

``hepcache.fileset`` finds this module by its name, because it is a room below.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import xxhash

from hepcache.errors import BadFileError, ConfigurationError, MissingItemError, StoreError
from hepcache.eventstore.columnar import ColumnarEvents, columnar, stamp_of
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset
from hepcache.eventstore.dataseturl import DatasetUrl
from hepcache.eventstore.keys import split_path
from hepcache.eventstore.store import Store
from hepcache.fileset.freshness import Freshness
from hepcache.fileset.model import FileRecord

__all__ = ["TREE", "examine", "look", "opened", "resolved"]

TREE = "Events"
"""What the entries are, where a file would have a tree of this name."""

_FORMAT = 1  # grows when the same products make other columns
_CLUSTER_EVENTS = 16_384
_T = TypeVar("_T")


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open a store that is there.

    Raises
    ------
    StoreError
        It isn't.
    """
    if url.startswith(("tcp://", "tls://")):
        yield _served(url)
        return
    with connect(url) as store:
        yield store


@lru_cache(maxsize=8)
def _served(url: str) -> Store:
    return connect(url)


def resolved(store: Store, path: str) -> Dataset:
    """Return a dataset as it is now, whatever the store remembers."""
    here = store.datasets
    for part in split_path(path):
        dataset = here[part]
        here = dataset.datasets
    return dataset


def look(path: str, options: Mapping[str, Any]) -> Freshness:  # noqa: ARG001 - the room's form
    """Ask whether a dataset has changed; see :func:`hepcache.fileset.freshness.look`."""

    def ask(store: Store, url: DatasetUrl) -> Freshness:
        dataset = resolved(store, url.dataset)
        return Freshness(0, _validator(dataset, stamp_of(store, dataset.key)), settled=True)

    return _asked(path, ask)


def examine(
    path: str,
    tree: str | None,
    options: Mapping[str, Any],  # noqa: ARG001 - the room's form
) -> tuple[FileRecord, Freshness]:
    """Describe the events of a dataset; see :func:`hepcache.fileset.probe.examine`.

    Warns
    -----
    UserWarning
        Products that are no columns.
    """
    if tree is not None and tree.strip("/") != TREE:
        raise BadFileError({path: f"no tree {tree!r} in it; the tree there is: {TREE}"})

    def ask(store: Store, url: DatasetUrl) -> tuple[FileRecord, Freshness]:
        dataset = resolved(store, url.dataset)
        events = columnar(store, dataset.key, url.numbers)
        if events.left_out:
            told = "; ".join(f"{name}: {why}" for name, why in sorted(events.left_out.items()))
            warnings.warn(f"{path}: these are no columns: {told}", UserWarning, stacklevel=2)
        fresh = Freshness(events.size_bytes, _validator(dataset, events.stamp), settled=True)
        return _record(path, dataset, url, events, fresh), fresh

    return _asked(path, ask)


def _validator(dataset: Dataset, stamp: str) -> str:
    return f"{dataset.uuid}-{stamp}"


def _record(
    path: str, dataset: Dataset, url: DatasetUrl, events: ColumnarEvents, fresh: Freshness
) -> FileRecord:
    facts = repr((_FORMAT, fresh.validator, url.numbers, len(events)))
    shown = [(one.name, one.type, one.counter) for one in events.columns.values()]
    return FileRecord(
        path=path,
        tree=TREE,
        uuid=str(UUID(bytes=dataset.key)),
        entries=len(events),
        clusters=_clusters(events),
        size=fresh.size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(facts.encode()),
        fingerprint=xxhash.xxh3_64_hexdigest(repr(shown).encode()),
    )


def _clusters(events: ColumnarEvents) -> tuple[int, ...]:
    """Return where entries are cut best: at subruns, and inside of large ones."""
    edges = events.starts.tolist()
    inner = (at for low, high in pairwise(edges)
             for at in range(low, high, _CLUSTER_EVENTS))  # fmt: skip
    return tuple(sorted({0, len(events), *inner}))


def _asked(path: str, ask: Callable[[Store, DatasetUrl], _T]) -> _T:
    try:
        url = DatasetUrl.parse(path)
        place = url.store.removeprefix("file://").partition("?")[0]
        if url.store.startswith("file://") and not (Path(place) / "store.json").is_file():
            raise BadFileError({path: f"there is no event store in {place}"})
        with opened(url.store) as store:
            return ask(store, url)
    except (StoreError, ConfigurationError, MissingItemError) as error:
        raise BadFileError({path: str(error)}) from error
