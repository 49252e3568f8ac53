"""What workers have counted, added up as it arrives, and how it grew."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hepcache.telemetry import Tally

__all__ = ["Counts", "History", "Rates"]

_NOTHING = Tally()


class Counts:
    """Totals of all workers, kept when workers leave.

    Attributes
    ----------
    total
        Of all hosts, since the scheduler began.
    hosts
        Of every host.
    """

    def __init__(self) -> None:
        self.total = Tally()
        self.hosts: defaultdict[str, Tally] = defaultdict(Tally)
        self._last: dict[str, Tally] = {}

    def hear(self, worker: str, host: str, said: Mapping[str, Any]) -> None:
        """Take what a worker has counted since its process began.

        Parameters
        ----------
        worker, host
            Who says so.
        said
            Its tally, as :meth:`hepcache.telemetry.Tally.to_dict` made it.
        """
        now, before = Tally.from_dict(said), self._last.get(worker, _NOTHING)
        if now.chunks < before.chunks:
            before = _NOTHING  # another process at the same address
        self._last[worker] = now
        if now.chunks > before.chunks:
            new = now - before
            self.total = self.total + new
            self.hosts[host] = self.hosts[host] + new

    def forget(self, worker: str) -> None:
        """Forget a worker that left; what it did stays counted."""
        self._last.pop(worker, None)


@dataclass(frozen=True, slots=True)
class Rates:
    """How much came from where over time, oldest first.

    Attributes
    ----------
    at
        Seconds, all negative or zero: before the last sample. Shape ``(n_samples,)``.
    cache_bytes, origin_bytes
        Bytes per second over the window that ends there.
    hit_ratio
        Part of the columns read in that window that came from a cache;
        not a number where none was read.
    """

    at: Sequence[float]
    cache_bytes: Sequence[float]
    origin_bytes: Sequence[float]
    hit_ratio: Sequence[float]


class History:
    """Totals at regular times.

    Parameters
    ----------
    samples
        How many are kept.
    window
        Over how many samples a rate is taken: workers tell what they did
        when a chunk is done, so what a single interval saw jumps.
    """

    def __init__(self, samples: int = 300, window: int = 5) -> None:
        self._samples: deque[tuple[float, Tally]] = deque(maxlen=samples + window)
        self._window = window

    def note(self, at: float, total: Tally) -> None:
        """Take a sample."""
        self._samples.append((at, total))

    def rates(self) -> Rates:
        """Return the rates at every sample but the first ones."""
        samples = list(self._samples)
        if len(samples) < 2:
            return Rates((), (), (), ())
        now = samples[-1][0]
        at, cache, origin, hits = [], [], [], []
        for number in range(1, len(samples)):
            (began, first), (ended, last) = samples[max(number - self._window, 0)], samples[number]
            seconds = max(ended - began, 1e-3)
            at.append(ended - now)
            cache.append((last.cache_bytes - first.cache_bytes) / seconds)
            origin.append((last.origin_bytes - first.origin_bytes) / seconds)
            columns = last.columns - first.columns
            hits.append(
                (last.causes["hit"] - first.causes["hit"]) / columns if columns else float("nan")
            )
        return Rates(at, cache, origin, hits)
