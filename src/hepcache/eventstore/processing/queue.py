"""The shared queue: a reader loads events ahead, workers take small batches of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, time
from typing import NamedTuple, Protocol

from hepcache.eventstore.processing.batch import EventBatch
from hepcache.eventstore.processing.ranges import Range, cut, loads

__all__ = ["Hand", "Load", "Loader", "ReaderStatistics", "WorkQueue"]


class Loader(Protocol):
    """Reads the events of one dataset; it can be sent to other processes."""

    def shards(self) -> Sequence[int]:
        """Return the shards that hold events."""
        ...

    def ranges(self, shard: int) -> Iterator[Range]:
        """Return the containers of a shard one by one, in order, without listing all first."""
        ...

    def load(self, ranges: Sequence[Range]) -> EventBatch:
        """Return events with their products, in the order of the ranges."""
        ...


@dataclass(frozen=True, slots=True)
class Hand:
    """What a worker takes at once.

    Attributes
    ----------
    ranges
        Which events these are.
    events
        The events.
    """

    ranges: tuple[Range, ...]
    events: EventBatch


class Load(NamedTuple):
    """One load of a reader.

    Attributes
    ----------
    began
        Seconds since the epoch.
    loading_s
        Seconds it took.
    events, nbytes
        Events, and bytes of their products.
    """

    began: float
    loading_s: float
    events: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ReaderStatistics:
    """What one reader did.

    Attributes
    ----------
    loads
        Each load, in order.
    waiting_s
        Seconds of waiting for room because workers were slower.
    """

    loads: tuple[Load, ...]
    waiting_s: float

    @property
    def events(self) -> int:
        """Events loaded."""
        return sum(one.events for one in self.loads)

    @property
    def loading_s(self) -> float:
        """Seconds of reading."""
        return sum(one.loading_s for one in self.loads)

    @property
    def nbytes(self) -> int:
        """Bytes loaded."""
        return sum(one.nbytes for one in self.loads)


class WorkQueue:
    """Loads the events of some shards, and deals them out.

    A worker takes a share of what is loaded that shrinks as it runs out, from
    as many work batches as it asks for down to a single one, so that few calls
    are made and all workers end together.

    Parameters
    ----------
    loader
        Reads the events.
    source
        Shards, or the ranges themselves.
    load_batch, work_batch
        Events of one load, and of the smallest share.
    workers
        How many take from this queue.
    ahead
        Loads that wait at most; memory holds two more.

    Attributes
    ----------
    given
        How many events were given out.

    Notes
    -----
    All methods may be called by any thread. The reader is a daemon thread.
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

    def pull(self, most: int = 1, wait_s: float | None = None) -> Hand | None:
        """Return the next events; wait for them where need be. ``None`` when there are no more.

        Parameters
        ----------
        most
            Work batches at most.
        wait_s
            How long to wait at most.

        Raises
        ------
        TimeoutError
            There are none yet, after that time.
        Exception
            Whatever the loader raised.
        """
        with self._changed:
            if not self._fill(wait_s) or self._events is None:
                return None
            left = len(self._events) - self._next + sum(len(one) for _, one in self._loaded)
            batches = max(1, min(most, left // (2 * self._workers * self._work_batch)))
            start = self._next
            stop = min(len(self._events), start + batches * self._work_batch)
            self._next = stop
            self.given += stop - start
            return Hand(tuple(cut(self._ranges, start, stop)), self._events.cut(start, stop))

    def left(self) -> int:
        """Return how many loaded events are left; at least 1 while more are to come."""
        with self._changed:
            at_hand = len(self._events) - self._next if self._events is not None else 0
            left = at_hand + sum(len(one) for _, one in self._loaded)
            return left if self._ended or self._stopped else max(left, 1)

    def stop(self) -> None:
        """Give out nothing more, and end the reader."""
        with self._changed:
            self._stopped = True
            self._loaded.clear()
            self._changed.notify_all()

    def statistics(self) -> ReaderStatistics:
        """Return what the reader did so far."""
        return ReaderStatistics(tuple(self._loads), self._waiting_s)

    def _fill(self, wait_s: float | None) -> bool:
        """Have a load with events left; tell whether there is one."""
        while not self._at_hand():
            self._events = None
            # Whoever waits here may find that another one has filled it meanwhile.
            if not self._changed.wait_for(
                lambda: self._at_hand() or self._loaded or self._ended or self._stopped, wait_s
            ):
                raise TimeoutError("no events are loaded yet")
            if self._stopped:
                return False
            if self._at_hand():
                continue
            if not self._loaded:
                if self._error is not None:
                    raise self._error
                return False
            (self._ranges, self._events), self._next = self._loaded.popleft(), 0
            self._changed.notify_all()
        return not self._stopped

    def _at_hand(self) -> bool:
        return self._events is not None and self._next < len(self._events)

    def _listed(self) -> Iterator[Range]:
        for one in self._source:
            if isinstance(one, Range):
                yield one
            else:
                yield from self._loader.ranges(one)

    def _read(self) -> None:
        # The first load is small, so that nobody waits long for the first batch.
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
