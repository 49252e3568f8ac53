"""Ways to read the columns of one chunk, for the benchmark of hot chunks: all in one process."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import awkward as ak
import numpy as np
import uproot
import zict
from coffea.nanoevents import BufferCache, NoCompressionCodec
from coffea.processor import ProcessorABC

from hepcache.errors import ProcessorError
from hepcache.fileset.segments import segment_boundaries
from hepcache.formats.registry import probe
from hepcache.process.chunk import Chunk, Content, process_chunk
from hepcache.process.worker_state import worker_state
from hepcache.settings import settings
from hepcache.upstream.coffea import WorkItem, coffea_work

__all__ = [
    "COFFEA",
    "COFFEA_CACHED",
    "HEPCACHE",
    "MEMORY",
    "UPROOT",
    "Chunks",
    "Sums",
    "interleaved",
]

HEPCACHE = "hepcache, hot"
COFFEA = "coffea"
COFFEA_CACHED = ("coffea, BufferCache on zict.File", "coffea, the same, memory-mapped")
UPROOT = "uproot"
MEMORY = "numpy, from memory"

Totals = dict[str, float]
Contender = Callable[[], Totals]


class Sums(ProcessorABC):
    """Add up every value of columns: the least that uses all bytes.

    Parameters
    ----------
    columns
        Branch to where the schema has it: a field of a collection, or a field.
    """

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self.places: dict[tuple[str, ...], dict[str, str]] = {}
        for branch, (*where, field) in columns.items():
            self.places.setdefault(tuple(where), {})[branch] = field

    def process(self, events: ak.Array) -> Totals:
        """Return the sum of every column by branch."""
        totals = {}
        for where, fields in self.places.items():
            record = events
            for field in where:
                record = record[field]
            # All at once: awkward's own work for a selection is as long for one as for all.
            layout = record[list(fields.values())].layout
            while not layout.is_record:
                layout = layout.content
            for branch, field in fields.items():
                totals[branch] = total(layout.content(field))
        return totals

    def postprocess(self, accumulator: Totals) -> None:
        """Leave the sums as they are."""


def total(layout: ak.contents.Content) -> float:
    """Return the sum of all values of a column of numbers, whatever the lists around them."""
    return np.add.reduce(_values(layout)).item()  # type: ignore[no-any-return]


def _values(layout: Any) -> Any:
    while not layout.is_numpy:
        layout = layout.content
    # An array that was not loaded yet; asking numpy for it would not keep it alive.
    return layout.data.materialize() if hasattr(layout.data, "materialize") else layout.data


@dataclass(frozen=True, slots=True)
class Chunks:
    """One file, and who reads which of its columns how.

    Attributes
    ----------
    path
        A file with a tree ``Events``.
    schema
        coffea's schema.
    columns
        As :class:`Sums` takes them.
    scratch
        Where coffea's caches are.
    """

    path: Path
    schema: type
    columns: Mapping[str, Sequence[str]]
    scratch: Path

    def hepcache(self, start: int, stop: int) -> Contender:
        """Return the work function of a task, reading through this process's cache."""
        record = probe(str(self.path), "Events")
        content = Content(
            tag=record.tag,
            validator=record.validator,
            boundaries=segment_boundaries(record.clusters, settings().segment_entries),
        )
        chunk = Chunk(
            "sample", record.path, record.tree, start, stop, UUID(record.uuid).bytes, {},
            content=content,
        )  # fmt: skip
        processor = Sums(self.columns)

        def read() -> Totals:
            done = process_chunk(
                chunk,
                processor,
                worker_state(),
                schema=self.schema,
                savemetrics=False,
                uproot_options={},
                iteritems_options={},
                checkpointer=None,
                buffer_cache=lambda: None,
            )
            out: Totals = done["out"]
            return out

        return read

    def coffea(self, start: int, stop: int, cache: Any = None) -> Contender:
        """Return coffea's work function, with a cache of buffers or without."""
        identity = UUID(probe(str(self.path), "Events").uuid).bytes
        item = WorkItem("sample", str(self.path), "Events", start, stop, identity, {})
        processor = Sums(self.columns)

        def read() -> Totals:
            done = coffea_work(
                "root", 60, self.schema, False, False, item, processor, {}, {}, None,
                lambda: cache,
            )  # fmt: skip
            out: Totals = done["out"]
            return out

        return read

    def coffea_cached(self, start: int, stop: int) -> dict[str, Contender]:
        """Return coffea's work function with its cache, kept on disk in two ways."""
        contenders = {}
        for name, memmap in zip(COFFEA_CACHED, (False, True), strict=True):
            # One of its own each time: it does not read what another one wrote.
            directory = tempfile.mkdtemp(prefix="buffers-", dir=self.scratch)
            cache = BufferCache(zict.File(directory, memmap=memmap), NoCompressionCodec())
            contenders[name] = self.coffea(start, stop, cache)
        return contenders

    def uproot(self, start: int, stop: int) -> Contender:
        """Return what opens the file and reads the columns as arrays, with no schema."""

        def read() -> Totals:
            with uproot.open({str(self.path): "Events"}) as tree:
                arrays = tree.arrays(
                    filter_name=set(self.columns).__contains__, entry_start=start,
                    entry_stop=stop, how=dict,
                )  # fmt: skip
            return {name: total(arrays[name].layout) for name in self.columns}

        return read

    def memory(self, start: int, stop: int) -> Contender:
        """Return what adds up the same values, which are numpy arrays already."""
        with uproot.open({str(self.path): "Events"}) as tree:
            arrays = {
                name: np.array(
                    _values(tree[name].array(entry_start=start, entry_stop=stop).layout)
                )
                for name in self.columns
            }
        return lambda: {name: np.add.reduce(values).item() for name, values in arrays.items()}


def interleaved(contenders: Mapping[str, Contender], runs: int) -> dict[str, float]:
    """Return the median time of each contender, in interleaved runs.

    Parameters
    ----------
    contenders
        By name. Each is called once before, to fill its caches.
    runs
        Number of runs.

    Raises
    ------
    ProcessorError
        Contenders did not come to the same sums.
    """
    results = {name: read() for name, read in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    turns = list(contenders.items())
    for run in range(runs):
        # Nobody always follows the same neighbour, who leaves the CPU's caches as he likes.
        first = run % len(turns)
        for name, read in turns[first:] + turns[:first]:
            began = time.perf_counter()
            results[name] = read()
            times[name].append(time.perf_counter() - began)
            _check(results)
    return {name: statistics.median(taken) for name, taken in times.items()}


def _check(results: Mapping[str, Totals]) -> None:
    (first, expected), *others = results.items()
    for name, found in others:
        differ = [column for column in expected if found.get(column) != expected[column]]
        if differ or len(found) != len(expected):
            raise ProcessorError(
                f"{name} and {first} add up different values of {', '.join(differ[:5])}"
            )
