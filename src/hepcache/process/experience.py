"""How long chunks of a kind of work took, and what they read: what the next run is planned by."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import fmean, median, pstdev
from typing import Any, Protocol

from hepcache.placement.calibration import Measured, calibrate
from hepcache.telemetry import ChunkRecord

__all__ = ["Blobs", "Experience", "Range"]

_KIND = "experience"
_VERSION = 1
_MOST_SEGMENTS = 50_000
_NEW_WEIGHT = 0.7


class Range(Protocol):
    """An entry range of a file, such as a chunk or what was recorded of one."""

    @property
    def uuid(self) -> str:
        """UUID of the file."""

    @property
    def segment(self) -> int:
        """First entry of the segment in which the range begins."""


class Blobs(Protocol):
    """Where small metadata are kept, such as the catalogue."""

    def blob_get(self, kind: str, key: str) -> bytes | None:
        """Return what was kept."""

    def blob_put(self, kind: str, key: str, data: bytes) -> None:
        """Keep something."""


@dataclass
class Experience:
    """What is known of one kind of work: a processor with a schema.

    Attributes
    ----------
    segments
        Seconds per entry where the columns are, by UUID and segment.
    speeds
        Speeds of hosts against one another; about 1.
    columns
        The columns that it touched.
    """

    segments: dict[str, dict[int, float]] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, blobs: Blobs, work: str) -> Experience:
        """Return what was saved of a kind of work; nothing where that is damaged or another's."""
        data = blobs.blob_get(_KIND, work)
        try:
            found: dict[str, Any] = json.loads(data or b"{}")
            if found.get("version") != _VERSION:
                return cls()
            segments = {
                uuid: {int(segment): float(rate) for segment, rate in rates.items()}
                for uuid, rates in found["segments"].items()
            }
            speeds = {str(host): float(speed) for host, speed in found["speeds"].items()}
            return cls(segments, speeds, [str(name) for name in found["columns"]])
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()

    def save(self, blobs: Blobs, work: str) -> None:
        """Keep it for the next run, in whatever process."""
        content = {
            "version": _VERSION,
            "segments": self.segments,
            "speeds": self.speeds,
            "columns": self.columns,
        }
        blobs.blob_put(_KIND, work, json.dumps(content, separators=(",", ":")).encode())

    def seconds(self, ranges: Sequence[Range], entries: Sequence[int]) -> list[float] | None:
        """Return how long chunks are expected to take on a host of speed 1.

        Parameters
        ----------
        ranges
            The chunks.
        entries
            Their numbers of entries.

        Returns
        -------
        list of float or None
            ``None`` when nothing at all is known.
        """
        if not self.segments:
            return None
        files = {uuid: fmean(rates.values()) for uuid, rates in self.segments.items() if rates}
        anything = median(files.values())
        return [
            self.segments.get(one.uuid, {}).get(one.segment, files.get(one.uuid, anything))
            * number
            for one, number in zip(ranges, entries, strict=True)
        ]

    def learn(self, chunks: Iterable[ChunkRecord], columns: Iterable[str]) -> None:
        """Take in what a run has recorded."""
        rates: defaultdict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
        for one in chunks:
            if one.stop > one.start:
                rate = max(_hot_s(one), 1e-6) / (one.stop - one.start)
                rates[one.uuid, one.segment].append((one.host, rate))
        if not rates:
            return
        self.columns = sorted(columns)
        self._learn_speeds(rates)
        for (uuid, segment), found in rates.items():
            new = fmean(rate * self.speeds.get(host, 1.0) for host, rate in found)
            known = self.segments.setdefault(uuid, {})
            old = known.get(segment, new)
            known[segment] = (1 - _NEW_WEIGHT) * old + _NEW_WEIGHT * new
        while sum(map(len, self.segments.values())) > _MOST_SEGMENTS and len(self.segments) > 1:
            del self.segments[next(iter(self.segments))]

    def _learn_speeds(self, rates: dict[tuple[str, int], list[tuple[str, float]]]) -> None:
        """Compare hosts by what each took for the files that several of them had parts of."""
        by_file: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for (uuid, _), found in rates.items():
            for host, rate in found:
                by_file[uuid][host].append(rate)
        ratios: defaultdict[str, list[float]] = defaultdict(list)
        for hosts in by_file.values():
            if len(hosts) > 1:
                mean = fmean(median(one) for one in hosts.values())
                for host, one in hosts.items():
                    ratios[host] += [mean / rate for rate in one]
        measured = {
            host: Measured(median(found), len(found), pstdev(map(log, found)))
            for host, found in ratios.items()
        }
        present = {host: self.speeds.get(host, 1.0) for host in measured}
        changed = calibrate(present, measured)
        self.speeds |= {host: new for host, new in changed.items() if new != present[host]}


def _hot_s(one: ChunkRecord) -> float:
    if one.origin_bytes:
        # What was opened, read and decoded now will be on the SSD the next time.
        return one.process_s - one.read_s - one.decode_s
    return one.ended - one.began
