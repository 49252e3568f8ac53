"""A store: its top datasets by path, and all that can be asked of it as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from typing import Any, Self

from rich.filesize import decimal

from hepcache.display import card
from hepcache.eventstore.containers import Dataset, Datasets, Event, Run, SubRun, dataset_of
from hepcache.eventstore.keys import ROOT, Address, Ref, split_path
from hepcache.eventstore.processing.loader import StoreLoader
from hepcache.eventstore.processing.processor import Processed, process
from hepcache.eventstore.queues import Queues
from hepcache.eventstore.shard.shard import Shard, verify
from hepcache.eventstore.sharded_store import ShardedStore


class Store(ShardedStore, MutableMapping[str, Dataset]):
    """Datasets, runs, subruns, events and products.

    Made by :func:`hepcache.eventstore.connect`. A mapping from the names of the top
    datasets; paths lead to nested ones: ``store["nova/prod5"]``. It can be sent to other
    processes, which open it themselves, unless it is ``mem://``.

    Parameters
    ----------
    url
        The URL it was opened with; other processes can open it, unless it is ``mem://``.
    shards
        All shards, in the order of their numbers.
    cache_bytes
        Capacity of the product cache that :meth:`SubRun.prefetch` fills.
    """

    def __init__(self, url: str, shards: Sequence[Shard], *, cache_bytes: int = 256 << 20) -> None:
        super().__init__(url, shards, cache_bytes=cache_bytes)
        self._closed = False

    def __getitem__(self, path: str) -> Dataset:
        return dataset_of(self, path)

    def __setitem__(self, path: str, value: Any) -> None:
        self.create(path).products.update(value)

    def __delitem__(self, path: str) -> None:
        *above, name = split_path(path)
        del (self["/".join(above)].datasets if above else self.datasets)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)

    @property
    def datasets(self) -> Datasets:
        """The top datasets, by name."""
        return Datasets(self, ROOT, "")

    @property
    def queues(self) -> Queues:
        """The queues, by name."""
        return Queues(self)

    def create(self, path: str) -> Dataset:
        """Return the dataset of a path; make it and its parents if they are missing."""
        datasets = self.datasets
        for part in split_path(path):
            dataset = datasets.create(part)
            datasets = dataset.datasets
        return dataset

    def open(self, address: Address) -> Dataset | Run | SubRun | Event:
        """Return the container of an address, without checking whether it exists."""
        dataset = Dataset(self, bytes.fromhex(address.dataset))
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

    def process(
        self,
        dataset: str,
        function: Callable[[Any], Any],
        *,
        products: Sequence[str] | Mapping[str, Sequence[str] | None],
        **options: Any,
    ) -> Processed:
        """Call a function on all events of a dataset, in parallel, and merge its results.

        Parameters
        ----------
        dataset
            Its path.
        function
            Called with batches of events with their products.
        products
            Labels of the products; as a mapping, label to the requested columns, or None.
        **options
            ``load_batch``, ``work_batch``, ``per``, ``merge``, ``on_error``, ``client`` (of
            Dask), ``workers``, ``processes``, ``progress``: see
            :func:`hepcache.eventstore.process`.

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
        return process(StoreLoader(self, dataset, products), function, **options)

    def info(self) -> dict[str, Any]:
        """Return the store's figures: URL, shards with engine, keys and bytes, statistics."""
        return {
            "url": self.url,
            "shards": [shard.info() for shard in self.shards],
            "statistics": self.statistics.to_dict(),
        }

    def verify(self) -> int:
        """Read everything and compare checksums; return how many values have one.

        A damaged value is a :class:`~hepcache.errors.StoreError`.
        """
        return sum(shard.query(verify) for shard in self._named)

    def close(self) -> None:
        """Close every shard; written data stays."""
        self._closed = True
        for shard in self.shards:
            shard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.url}, {len(self.shards)} shards>"

    def _repr_html_(self) -> str:
        if self._closed:
            return card("Event store, closed", {"url": self.url})
        facts = {
            "url": self.url,
            "datasets": ", ".join(islice(self, 10)) + (", ..." if len(self) > 10 else ""),
        }
        infos = [shard.info() for shard in self.shards]
        rows = [
            (number, info["engine"], f"{info['keys']:,}", decimal(info["size_bytes"]))
            for number, info in enumerate(infos)
        ]
        return card("Event store", facts, ("shard", "engine", "keys", "size"), rows)

    def __bool__(self) -> bool:
        """Return whether the store is open."""
        return not self._closed

    def __hash__(self) -> int:
        return hash(self.url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self.is_same(other)
