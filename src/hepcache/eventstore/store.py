"""A store: its top datasets, and what all its containers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.filesize import decimal

from hepcache.errors import MissingItemError
from hepcache.eventstore.batch import Batch
from hepcache.eventstore.cache import ProductCache
from hepcache.eventstore.containers import Dataset, Datasets, Run
from hepcache.eventstore.keys import ROOT, shard_of, split_path
from hepcache.eventstore.operations import Operation
from hepcache.eventstore.ref import Address, Ref
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.shard import Shard
from hepcache.eventstore.stats import Statistics
from hepcache.eventstore.subrun import Event, SubRun
from hepcache.notebook import card

if TYPE_CHECKING:
    from hepcache.eventstore.processing import Processed

__all__ = ["Store"]

_MOST_PLACED = 65_536  # containers whose shard is remembered


class Store(MutableMapping[str, Dataset]):
    """Datasets, runs, subruns, events and products.

    Made by :func:`hepcache.eventstore.connect`. A mapping from the names of the top
    datasets; paths lead to nested ones: ``store["nova/prod5"]``.

    Parameters
    ----------
    url
        What it was opened with; other processes can connect to it, unless it is ``mem://``.
    shards
        All shards, in the order of their numbers.
    cache_bytes
        Capacity of the product cache that :meth:`SubRun.prefetch` fills.
    """

    def __init__(self, url: str, shards: Sequence[Shard], *, cache_bytes: int = 256 << 20) -> None:
        self.url = url
        self.shards = list(shards)
        self.cache = ProductCache(cache_bytes)
        self.statistics = Statistics()
        self._schemas: dict[tuple[bytes, str], list[Schema]] = {}
        self._uuids: dict[str, bytes] = {}
        self._placed: dict[bytes, Shard] = {}
        self._closed = False

    def __getitem__(self, path: str) -> Dataset:
        parts = split_path(path)
        known = self._uuids.get("/".join(parts))
        if known is not None:
            return Dataset(self, known, "/".join(parts))
        here = Datasets(self, ROOT, "")
        for part in parts[:-1]:
            here = here[part].datasets
        found = here[parts[-1]]
        self._uuids[found.path] = found.key
        return found

    def __setitem__(self, path: str, value: Any) -> None:
        self.create(path).products.update(value)

    def __delitem__(self, path: str) -> None:
        *above, name = split_path(path)
        del (self["/".join(above)].datasets if above else self.datasets)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)

    def __contains__(self, path: object) -> bool:
        try:
            self[path]  # type: ignore[index]
        except MissingItemError:
            return False
        return True

    @property
    def datasets(self) -> Datasets:
        """The top datasets, by name."""
        return Datasets(self, ROOT, "")

    def create(self, path: str) -> Dataset:
        """Return the dataset of a path, made with its parents where missing."""
        here = self.datasets
        for part in split_path(path):
            dataset = here.create(part)
            here = dataset.datasets
        return dataset

    def open(self, address: Address) -> Dataset | Run | SubRun | Event:
        """Return the container of an address, without looking whether it exists."""
        dataset = Dataset(self, bytes.fromhex(address.dataset), address.dataset)
        if address.run is None:
            return dataset
        run = dataset.at(address.run)
        if address.subrun is None:
            return run
        subrun = run.at(address.subrun)
        return subrun if address.event is None else subrun.at(address.event)

    def load(self, ref: Ref) -> Any:
        """Return the product, or the rows of it, that a reference stands for."""
        products = self.open(ref.address).products
        key: Any = ref.label
        if ref.identity:
            key = (ref.label, products.schema(ref.label, ref.identity))
        value = products[key]
        whole = ref.start is None and ref.stop is None
        return value if whole else value[ref.start : ref.stop]

    def batch(
        self,
        size: int = 16384,
        *,
        size_bytes: int = 64 << 20,
        under_way: int = 2,
        background: bool = True,
    ) -> Batch:
        """Return a batch: writes grouped by shard, sent in the background.

        Parameters
        ----------
        size
            Events and products of a group at most.
        size_bytes
            A group is sent when it has grown to this.
        under_way
            Groups that wait or are being written at most; memory is bounded by
            ``(under_way + 1) * size_bytes`` for each shard.
        background
            Write in another thread.

        Examples
        --------
        >>> from hepcache.eventstore import connect
        >>> import numpy as np
        >>> store = connect("mem://")
        >>> subrun = store.create("nova").create(1).create(0)
        >>> with store.batch(size=1000) as batch:
        ...     for number in range(3):
        ...         event = subrun.create(number, batch=batch)
        ...         event.store("energy", np.float32([number]), batch=batch)
        >>> subrun.read("energy").array().tolist()
        [[0.0], [1.0], [2.0]]
        """
        return Batch(
            self._send,
            size=size,
            size_bytes=size_bytes,
            under_way=under_way,
            background=background,
        )

    def apply(self, container: bytes, operations: Sequence[Operation]) -> None:
        """Write to the shard of a container, now and as one."""
        self._send(self.number_of_shard(container), operations)

    def _send(self, shard: int, operations: Sequence[Operation]) -> None:
        self.shards[shard].apply(operations)
        self.statistics.count(operations)
        if len(self.cache):
            for one in operations:
                self.cache.forget(getattr(one, "subrun", b"\xff"))

    def number_of_shard(self, container: bytes) -> int:
        """Return the number of the shard of what a container lists."""
        return shard_of(container, len(self.shards))

    def shard(self, container: bytes) -> Shard:
        """Return the shard of what a container lists, and of its products."""
        found = self._placed.get(container)
        if found is None:
            if len(self._placed) >= _MOST_PLACED:
                self._placed.clear()
            found = self._placed[container] = self.shards[self.number_of_shard(container)]
        return found

    def process(
        self,
        dataset: str,
        function: Callable[[Any], Any],
        *,
        products: Sequence[str] | Mapping[str, Sequence[str] | None],
        **options: Any,
    ) -> Processed:
        """Call a function on all events of a dataset, in parallel, and merge what it returns.

        Parameters
        ----------
        dataset
            Its path.
        function
            Gets batches of events with their products.
        products
            Labels of the products; as a mapping, label to the columns wanted, or None.
        **options
            ``load_batch``, ``work_batch``, ``per``, ``merge``, ``on_error``, ``client`` (of
            Dask), ``workers``, ``processes``, ``progress``: see
            :func:`hepcache.eventstore.processing.process`.

        Examples
        --------
        >>> from hepcache.eventstore import connect
        >>> import numpy as np
        >>> store = connect("mem://")
        >>> subrun = store.create("nova").create(1).create(0)
        >>> subrun.ingest("slice", [3, 7], {"nhit": np.array([30, 10, 20])}, [0, 1, 3])
        >>> store.process("nova", len, products=["slice"]).value
        2
        """
        from hepcache.eventstore.processing import StoreLoader, process

        return process(StoreLoader(self, dataset, products), function, **options)

    def schemas(self, subrun: bytes, label: str, *, anew: bool = False) -> list[Schema]:
        """Return the types stored under a label for events of a subrun."""
        known = self._schemas.get((subrun, label))
        if known is None or anew:
            found: dict[str, list[Schema]] = {label: []}
            for name, schema in self.shard(subrun).types(subrun):
                found.setdefault(name, []).append(schema)
            self._schemas.pop((subrun, label), None)
            for name, schemas in found.items():
                if schemas:
                    self._schemas[subrun, name] = schemas
            known = found[label]
        return known

    def forget(self, prefix: bytes, path: str | None = None) -> None:
        """Drop what is remembered of a container and all below it."""
        self.cache.forget(prefix)
        for key in [one for one in self._schemas if one[0].startswith(prefix)]:
            self._schemas.pop(key, None)
        if path is not None:
            for known in [one for one in self._uuids if f"{one}/".startswith(f"{path}/")]:
                self._uuids.pop(known, None)

    def info(self) -> dict[str, Any]:
        """Return the store's figures: URL, shards with engine, keys and bytes, statistics."""
        return {
            "url": self.url,
            "shards": [shard.info() for shard in self.shards],
            "statistics": self.statistics.to_dict(),
        }

    def verify(self) -> int:
        """Read everything and compare checksums; return how many values have one.

        Raises
        ------
        StoreError
            A value is damaged.
        """
        return sum(shard.verify() for shard in self.shards)

    def close(self) -> None:
        """Close every shard; what was written stays."""
        self._closed = True
        for shard in self.shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.url}, {len(self.shards)} shards>"

    def _repr_html_(self) -> str:
        if self._closed:
            return card("Event store, closed", {"url": self.url})
        shards = [shard.info() for shard in self.shards]
        facts = {
            "url": self.url,
            "datasets": ", ".join(islice(self, 10)) + (", ..." if len(self) > 10 else ""),
        }
        rows = [
            (number, one["engine"], f"{one['keys']:,}", decimal(one["size_bytes"]))
            for number, one in enumerate(shards)
        ]
        return card("Event store", facts, ("shard", "engine", "keys", "size"), rows)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other
