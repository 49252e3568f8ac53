"""What faults are tried on: columns of a file, and what a user's function computes of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import awkward as ak
import numpy as np
import uproot
from coffea.nanoevents import BaseSchema
from tests.cache.entries import entries_equal

import hepcache
from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.formats.reader import Reader
from hepcache.formats.registry import open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.process.forms import FormCache
from hepcache.process.lazy_columns import ChunkEvents
from hepcache.results.derived import ChunkFiles, DerivedColumns
from hepcache.results.opened_files import OpenedFiles
from hepcache.telemetry import DerivedUse, ReadLog

EVENTS = 40
SIZE = 20_000


class Kind(Protocol):
    """Numbered values that a cache keeps."""

    parts: int
    """Files that one value takes."""

    def ask(self, cache: ColumnCache, numbers: Iterable[int], size: int = SIZE) -> list[int]:
        """Have values, of ``size`` numbers each; return which of them had to be made.

        Raises ``AssertionError``: a value is wrong.
        """
        ...


class Columns:
    """Columns of a segment each, under the cache's own keys."""

    parts = 1

    def key(self, number: int) -> ColumnKey:
        """Return the key of a value."""
        return ColumnKey("6ac7019c", "tag", "Events", number // 10, 1000, f"c{number % 10}")

    def entry(self, number: int, size: int = SIZE) -> Entry:
        """Return a value."""
        return Entry(b"m%d" % number, (np.random.default_rng(number).integers(0, 99, size),))

    def ask(self, cache: ColumnCache, numbers: Iterable[int], size: int = SIZE) -> list[int]:
        """Have columns."""
        made: list[int] = []

        def produce(missing: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
            found = {key: key.start * 10 + int(key.column[1:]) for key in missing}
            made.extend(found.values())
            return {key: self.entry(number, size) for key, number in found.items()}

        keys = {self.key(number): number for number in numbers}
        for key, (found, _) in cache.fetch(keys, produce).items():
            assert entries_equal(found, self.entry(keys[key], size))
        return made


@hepcache.derived
def numbered(events: Any, number: int, size: int) -> Any:
    """Return lists whose lengths and numbers depend on the event and on an argument."""
    counts = size // EVENTS + np.asarray(events.x * number) % 3
    lists = ak.unflatten(np.zeros(counts.sum(), np.int64), counts)
    return ak.local_index(lists) * (2 * number + 1) + events.x * 31


class DerivedValues:
    """Derived columns of a chunk of two segments.

    Parameters
    ----------
    directory
        Where the file with the events is made.
    """

    parts = 2

    def __init__(self, directory: Path) -> None:
        path = directory / "events.root"
        with uproot.recreate(path) as file:
            file.mktree("Events", {"x": np.int64})
            for start in (0, EVENTS // 2):
                file["Events"].extend({"x": np.arange(start, start + EVENTS // 2)})
        self.known = probe(str(path), "Events")
        self.forms = FormCache()

    def ask(self, cache: ColumnCache, numbers: Iterable[int], size: int = SIZE) -> list[int]:
        """Have derived columns of one chunk."""
        log = ReadLog()
        events = self.events(cache, log)
        made: list[int] = []
        for number in numbers:
            computed = log.derived.get(numbered.label, DerivedUse()).computed
            found = numbered(events, number, size)
            expected = numbered.function(events, number, size)
            assert ak.array_equal(found, expected, dtype_exact=True), number
            if log.derived[numbered.label].computed > computed:
                made.append(number)
        assert not log.derived[numbered.label].reason
        return made

    def events(self, cache: ColumnCache, log: ReadLog) -> Any:
        """Return the chunk's events, as a processor gets them."""
        known = self.known
        boundaries = 0, EVENTS // 2, EVENTS
        ref = TreeRef(
            known.path, "Events", known.uuid, known.tag, known.validator, boundaries, store=cache
        )
        metadata = {"dataset": "dy", "entrystart": 0, "entrystop": EVENTS}
        derived = DerivedColumns(
            cache=cache,
            key=ColumnKey(known.uuid, known.tag, "Events", 0, EVENTS, ""),
            boundaries=boundaries,
            entries=(0, EVENTS),
            form=BaseSchema,
            metadata=metadata,
            log=log,
            files=ChunkFiles(lambda _: True, OpenedFiles(), lambda _: None, {}),
        )
        form = self.forms.form(ref, BaseSchema, cache, {}, log)
        reader = Reader(ref, cache, open_source, log)
        self._chunk = ChunkEvents(form, reader, 0, EVENTS, metadata, None, None, derived)
        return self._chunk.events
