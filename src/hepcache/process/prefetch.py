"""Fetching ahead: what the next chunks need comes while the current one computes.

A process remembers which columns its last chunks of a kind of work touched,
and their host's cache keeps that for the next process. They are fetched
together when the next such chunk begins, and the requests for the chunks
after it go out before. What was fetched is memory and requests of this
process: chunks that another worker takes over are forgotten, and nothing of
them has reached the cache.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import xxhash

from hepcache.cache import ColumnCache
from hepcache.cache.model import ColumnKey
from hepcache.fileset.segments import overlapping
from hepcache.formats.registry import open_source
from hepcache.formats.source import Source, TreeRef
from hepcache.io.ranges import Range
from hepcache.settings import settings

_MOST_CHUNKS = 3
_MOST_KINDS = 256
_KIND = "touched-columns"

Segment = tuple[str, str, str, int]
"""UUID, tag, tree and first entry."""


@dataclass(frozen=True, slots=True)
class Next:
    """A chunk that this worker will process soon, with the cache for its columns."""

    ref: TreeRef
    start: int
    stop: int
    columns: frozenset[str] = field(compare=False)
    cache: ColumnCache = field(compare=False)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """The segments that the chunk lies in."""
        return overlapping(self.ref.boundaries, self.start, self.stop)

    def names(self) -> set[Segment]:
        """Return what tells its segments from all others."""
        ref = self.ref
        return {(ref.uuid, ref.tag, ref.tree, start) for start, _ in self.segments}


@dataclass(slots=True)
class _Expected:
    """What was fetched ahead for one segment."""

    source: Source
    ranges: list[Range]

    @property
    def nbytes(self) -> int:
        return sum(length for _, length in self.ranges)


class Prefetcher:
    """What a process fetches ahead, and what it has learned of its work.

    Safe to use from several threads. The fetching is planned in a thread of
    its own, because it may have to open a file.
    """

    def __init__(self, open_source: Callable[[TreeRef], Source] = open_source) -> None:
        self._open_source = open_source
        self._expected: dict[Segment, _Expected] = {}
        self._learned: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._met: dict[str, frozenset[str]] = {}
        self._running: Counter[Segment] = Counter()
        self._wanted: set[Segment] = set()
        self._lock = threading.Lock()
        self._planner: ThreadPoolExecutor | None = None
        self.missing = True
        """Whether the last chunk had to read at its origin; if not, the next ones won't."""

    def columns(self, kind: str, dataset: str, cache: ColumnCache) -> frozenset[str]:
        """Return the columns that a kind of work touches in a dataset, as far as is known.

        Of a dataset that is new here: what it touches in others.
        ``cache``: where this host keeps what processes before this one have learned.
        """
        found = self._learned.get(f"{kind}/{dataset}") or self._learned.get(kind)
        if found is None:
            found = self._learned[kind] = _kept(kind, cache), frozenset()
        last, before = found
        return last | before

    def learn(self, kind: str, dataset: str, touched: Iterable[str], cache: ColumnCache) -> None:
        """Remember what a chunk has touched; the last two count."""
        columns = frozenset(touched)
        for work in (f"{kind}/{dataset}", kind):
            last, _ = self._learned.pop(work, (frozenset(), frozenset()))
            self._learned[work] = columns, last
        while len(self._learned) > _MOST_KINDS:
            del self._learned[next(iter(self._learned))]
        # Datasets differ: the host keeps all that its last process has met.
        known = self._met.get(kind)
        if known is None or not columns <= known:
            self._met[kind] = columns | (known or frozenset())
            _keep(kind, self._met[kind], cache)

    def begin(self, chunk: Next, following: Sequence[Next]) -> None:
        """Note that a chunk begins, and fetch for those that follow."""
        coming = {name for later in following for name in later.names()}
        with self._lock:
            self._running.update(chunk.names())
            self._wanted = coming
            gone = self._expected.keys() - coming - self._running.keys()
            dropped = [self._expected.pop(name) for name in gone]
        _forget(dropped)
        budget = settings().origin_ahead_bytes
        if budget:
            for later in following[:_MOST_CHUNKS]:
                if later.columns and not later.names() <= self._expected.keys():
                    self._plan().submit(self._expect, later, budget)

    def end(self, chunk: Next, *, missing: bool) -> None:
        """Note that a chunk is done, and whether it had to read at its origin."""
        self.missing = missing
        with self._lock:
            self._running.subtract(chunk.names())
            self._running = +self._running
            names = chunk.names() - self._running.keys() - self._wanted
            done = [self._expected.pop(name) for name in names if name in self._expected]
        _forget(done)

    def drop(self) -> None:
        """Forget all that was fetched ahead: no more work is waiting."""
        with self._lock:
            self._wanted = set()
            gone = self._expected.keys() - self._running.keys()
            dropped = [self._expected.pop(name) for name in gone]
        _forget(dropped)

    def forget(self) -> None:
        """Forget what was learned as well: a cold start."""
        self.drop()
        self._learned.clear()
        self._met.clear()
        self.missing = True

    @property
    def held_bytes(self) -> int:
        """Bytes that have come for later chunks or are on their way."""
        with self._lock:
            return sum(expected.nbytes for expected in self._expected.values())

    def wait_until_asked(self) -> None:
        """Wait until the origin was asked for all that was planned so far, but for the last."""
        self._plan().submit(lambda: None).result()

    def _plan(self) -> ThreadPoolExecutor:
        if self._planner is None:
            self._planner = ThreadPoolExecutor(1, thread_name_prefix="hepcache-plan")
        return self._planner

    def _expect(self, chunk: Next, budget: int) -> None:
        # Whatever goes wrong will go wrong again in the chunk itself, which reports it.
        with suppress(Exception):
            for start, stop in chunk.segments:
                name = (chunk.ref.uuid, chunk.ref.tag, chunk.ref.tree, start)
                if self._needed(name):
                    self._expect_segment(chunk, (start, stop), name, budget)

    def _needed(self, name: Segment) -> bool:
        with self._lock:
            others = name in self._running or name in self._expected
            return name in self._wanted and not others

    def _expect_segment(
        self, chunk: Next, segment: tuple[int, int], name: Segment, budget: int
    ) -> None:
        def absent(columns: Iterable[str]) -> list[str]:
            ref = chunk.ref
            keys = (ColumnKey(ref.uuid, ref.tag, ref.tree, *segment, column) for column in columns)
            return [key.column for key in keys if not chunk.cache.has(key)]

        wanted = absent(sorted(chunk.columns))
        if not wanted:
            return
        source = self._open_source(chunk.ref)
        wanted = [column for column in wanted if source.has(column)]
        counters = {source.counter(column) for column in wanted} - {None, *wanted}
        ranges = source.ranges([*wanted, *absent(sorted(filter(None, counters)))], *segment)
        expected = _Expected(source, ranges)
        if not ranges or self.held_bytes + expected.nbytes > budget:
            return
        with self._lock:
            # The chunk may have begun or been taken over meanwhile.
            if name not in self._wanted or name in self._running:
                return
            self._expected[name] = expected
        source.expect(ranges)
        with self._lock:
            dropped = self._expected.get(name) is not expected
        if dropped:
            source.forget(ranges)
        # One chunk after the other: the nearest comes soonest, other hosts get their part
        # of the link, and of a chunk that is taken over little was read for nothing.
        source.await_few()


def _forget(fetched: Iterable[_Expected]) -> None:
    for expected in fetched:
        expected.source.forget(expected.ranges)


def _kept(kind: str, cache: ColumnCache) -> frozenset[str]:
    """Return the columns that a kind of work touched in earlier processes of a host."""
    text = cache.blob_get(_KIND, _name(kind))
    with suppress(ValueError):
        columns = json.loads(text or b"[]")
        if isinstance(columns, list):
            return frozenset(filter(lambda name: isinstance(name, str), columns))
    return frozenset()


def _keep(kind: str, columns: frozenset[str], cache: ColumnCache) -> None:
    text = json.dumps(sorted(columns)).encode()
    if cache.blob_get(_KIND, _name(kind)) != text:
        cache.blob_put(_KIND, _name(kind), text)


def _name(kind: str) -> str:
    return xxhash.xxh3_128_hexdigest(kind.encode())
