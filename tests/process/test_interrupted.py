"""What a run that was interrupted lacks, of chunks that were cut, and of files named twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hepcache.process.chunk import FAILED, RECORDS
from hepcache.process.executor import with_missing
from hepcache.report.outcomes import MissingChunk
from hepcache.upstream.coffea import WorkItem

Ranges = list[tuple[int, int]]


def chunk(start: int, stop: int) -> WorkItem:
    return WorkItem("dy", "a.root", "Events", start, stop, b"\0" * 16, {})


@pytest.mark.parametrize(
    ("planned", "done", "failed", "lacking"),
    [
        ([(0, 10), (10, 20)], [(0, 10)], [], [(10, 20)]),
        ([(0, 10), (10, 20)], [(0, 5), (12, 15)], [], [(5, 10), (10, 12), (15, 20)]),
        ([(0, 10), (10, 20)], [(0, 5)], [(5, 10)], [(10, 20)]),
        ([(0, 10), (0, 10)], [(0, 10)], [], [(0, 10)]),
        ([(0, 10), (0, 10)], [(0, 5), (0, 10)], [], [(5, 10)]),
        ([(0, 10), (0, 10)], [], [(0, 10)], [(0, 10)]),
    ],
)
def test_every_event_is_done_or_lacking(
    planned: Ranges, done: Ranges, failed: Ranges, lacking: Ranges
) -> None:
    result: dict[str, Any] = {
        "out": 0,
        "processed": {chunk(*entries) for entries in done},
        RECORDS: [
            SimpleNamespace(dataset="dy", path="a.root", tree="Events", start=start, stop=stop)
            for start, stop in done
        ],
        FAILED: [MissingChunk("dy", "a.root", "Events", *entries, "no cut") for entries in failed],
    }
    found, _ = with_missing([chunk(*entries) for entries in planned], result, KeyboardInterrupt())
    assert [(part.start, part.stop) for part in found[FAILED][len(failed) :]] == lacking
