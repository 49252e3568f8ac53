"""The queue between a reader, which loads events ahead, and workers, which take few at once."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, time
from typing import NamedTuple, Protocol

from hepcache.eventstore.processing.batch import EventBatch


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive events of one container, from one position to another.

    The key names the container, normally by run and subrun.
    """

    key: Hashable
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def loads(ranges: Iterable[Range], events: int, first: int | None = None) -> Iterator[list[Range]]:
    """Group ranges so that each group but the last has a number of events.

    With ``first`` the first group has so many, and each that follows twice as many as the one
    before, up to ``events``: the first is loaded soon, and lasts until the next one is.

    Ranges are listed when they are needed, so that the first group is known while the last
    ranges are not.

    >>> [sum(map(len, group)) for group in loads([Range("a", 0, 5), Range("b", 0, 4)], 3)]
    [3, 3, 3]
    """
    group: list[Range] = []
    size = room = min(first or events, events)
    for whole in ranges:
        start = whole.start
        while start < whole.stop:
            stop = min(whole.stop, start + room)
            group.append(Range(whole.key, start, stop))
            room -= stop - start
            start = stop
            if not room:
                yield group
                size = min(2 * size, events)
                group, room = [], size
    if group:
        yield group


def cut(ranges: Iterable[Range], start: int, stop: int) -> list[Range]:
    """Return the part of a group of ranges between two positions in it."""
    found, position = [], 0
    for whole in ranges:
        low, high = max(start - position, 0), min(stop - position, len(whole))
        if low < high:
            found.append(Range(whole.key, whole.start + low, whole.start + high))
        position += len(whole)
    return found


def uncovered(wanted: Iterable[Range], done: Iterable[Range]) -> Iterator[Range]:
    """Return the events that are wanted and not done, in the order in which they are wanted.

    Raises ``ValueError``: Events were done twice.

    >>> list(uncovered([Range("a", 0, 9)], [Range("a", 3, 5)]))
    [Range(key='a', start=0, stop=3), Range(key='a', start=5, stop=9)]
    """
    by_key: defaultdict[Hashable, list[Range]] = defaultdict(list)
    for part in done:
        by_key[part.key].append(part)
    for key, parts in by_key.items():
        parts.sort(key=lambda part: part.start)
        for before, after in itertools.pairwise(parts):
            if after.start < before.stop:
                raise ValueError(f"events {after.start} to {before.stop} of {key} counted twice")
    for whole in wanted:
        start = whole.start
        for part in by_key.get(whole.key, ()):
            if part.stop <= start or part.start >= whole.stop:
                continue
            if part.start > start:
                yield Range(whole.key, start, part.start)
            start = max(start, part.stop)
        if start < whole.stop:
            yield Range(whole.key, start, whole.stop)


class Loader(Protocol):
    """Reads the events of one dataset; it can be sent to other processes."""

    def shards(self) -> Sequence[int]:
        """Return the shards that hold events."""

    def ranges(self, shard: int) -> Iterator[Range]:
        """Yield the containers of a shard in order, without listing all first."""

    def load(self, ranges: Sequence[Range]) -> EventBatch:
        """Return events with their products, in the order of the ranges."""


@dataclass(frozen=True, slots=True)
class EventSlice:
    """Loaded events that a worker takes at once, and the ranges they are of."""

    ranges: tuple[Range, ...]
    events: EventBatch


class Load(NamedTuple):
    """One load of a reader, which began so many seconds after the epoch."""

    began: float
    loading_s: float
    events: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """The loads of one reader, in order, and how long it waited because workers were slower."""

    loads: tuple[Load, ...]
    waiting_s: float

    @property
    def events(self) -> int:
        """Events loaded."""
        return sum(load.events for load in self.loads)

    @property
    def loading_s(self) -> float:
        """Seconds of reading."""
        return sum(load.loading_s for load in self.loads)

    @property
    def nbytes(self) -> int:
        """Bytes loaded."""
        return sum(load.nbytes for load in self.loads)


class WorkQueue:
    """Loads the events of some shards, and hands them out.

    A worker takes a share of the loaded events that shrinks as they run out, from as many work
    batches as it asks for down to a single one, so that few calls are made and all workers end
    together.

    A load has ``load_batch`` events, the smallest share ``work_batch``. At most ``ahead`` loads
    wait; memory holds two more. All methods may be called by any thread. The reader is a daemon
    thread.
    """

    def __init__(
        self,
        loader: Loader,
        source: Sequence[int] | Sequence[Range],
        *,
        load_batch: int,
        work_batch: int,
        workers: int,
        ahead: int = 1,
    ) -> None:
        self._loader, self._source = loader, source
        self._load_batch, self._work_batch, self._workers = load_batch, work_batch, workers
        self._loaded: deque[tuple[list[Range], EventBatch]] = deque()
        self._ahead = max(1, ahead)
        self._error: BaseException | None = None
        self._ranges: list[Range] = []
        self._events: EventBatch | None = None
        self._next, self._ended, self._stopped = 0, False, False
        self._changed = threading.Condition()
        self.given = 0
        self._loads: list[Load] = []
        self._waiting_s = 0.0
        self._reader = threading.Thread(target=self._read, name="event-reader", daemon=True)
        self._reader.start()

    def pull(self, most: int = 1, wait_s: float | None = None) -> EventSlice | None:
        """Return the next events, at most so many work batches; ``None`` when there are no more.

        Raises ``TimeoutError``: None are loaded yet, after ``wait_s``.
        Raises ``Exception``: the loader's exception.
        """
        with self._changed:
            if not self._fill(wait_s) or self._events is None:
                return None
            loaded = len(self._events) - self._next + self._waiting_events()
            batches = max(1, min(most, loaded // (2 * self._workers * self._work_batch)))
            start = self._next
            stop = min(len(self._events), start + batches * self._work_batch)
            self._next = stop
            self.given += stop - start
            return EventSlice(tuple(cut(self._ranges, start, stop)), self._events.cut(start, stop))

    def left(self) -> int:
        """Return how many loaded events are left; at least 1 while more are to come."""
        with self._changed:
            current = len(self._events) - self._next if self._events is not None else 0
            left = current + self._waiting_events()
            return left if self._ended or self._stopped else max(left, 1)

    def _waiting_events(self) -> int:
        return sum(len(events) for _, events in self._loaded)

    def stop(self) -> None:
        """Give out nothing more, and end the reader."""
        with self._changed:
            self._stopped = True
            self._loaded.clear()
            self._changed.notify_all()

    def statistics(self) -> ReaderStatistics:
        """Return the reader's loads so far."""
        return ReaderStatistics(tuple(self._loads), self._waiting_s)

    def _fill(self, wait_s: float | None) -> bool:
        """Make the next load current if none has events left; return whether one has."""
        while not self._has_events():
            self._events = None
            # While this thread waits, another one may take the next load.
            if not self._changed.wait_for(
                lambda: self._has_events() or self._loaded or self._ended or self._stopped, wait_s
            ):
                raise TimeoutError("no events are loaded yet")
            if self._stopped:
                return False
            if self._has_events():
                continue
            if not self._loaded:
                if self._error is not None:
                    raise self._error
                return False
            (self._ranges, self._events), self._next = self._loaded.popleft(), 0
            self._changed.notify_all()
        return not self._stopped

    def _has_events(self) -> bool:
        return self._events is not None and self._next < len(self._events)

    def _listed(self) -> Iterator[Range]:
        for item in self._source:
            if isinstance(item, Range):
                yield item
            else:
                yield from self._loader.ranges(item)

    def _read(self) -> None:
        # The first load is small, so that workers don't wait long for the first batch.
        size = max(self._work_batch * self._workers, self._load_batch // 8)
        try:
            for ranges in loads(self._listed(), self._load_batch, size):
                began, begin = time(), perf_counter()
                events = self._loader.load(ranges)
                loaded = perf_counter()
                load = Load(began, loaded - begin, len(events), events.nbytes)
                with self._changed:
                    self._loads.append(load)
                    self._changed.wait_for(
                        lambda: len(self._loaded) < self._ahead or self._stopped
                    )
                    if self._stopped:
                        return
                    self._loaded.append((ranges, events))
                    self._waiting_s += perf_counter() - loaded
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
