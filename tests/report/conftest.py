"""Records of runs that never ran, with numbers that can be added up by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hepcache.report import Comparison, CycleReport, RunRecord
from hepcache.report.outcomes import MissingChunk
from hepcache.telemetry import ChunkRecord

TIMES = "\N{MULTIPLICATION SIGN}"
GONE = MissingChunk("tt", "/bad.root", "Events", None, None, "it is <truncated>")


def chunk(**changes: Any) -> ChunkRecord:
    """One chunk of 100 entries and three columns, cold, one second long."""
    plain = ChunkRecord(
        dataset="tt", path="/data/a.root", uuid="u", tree="Events", start=0, stop=100, segment=0,
        host="host-0", worker="w0", owner="host-0", began=1000.0, ended=1001.0, open_s=0.1,
        read_s=0.3, decode_s=0.2, process_s=0.9, causes={"miss": 3}, cause_bytes={"miss": 3000},
        cache_bytes=0, origin_bytes=1500, columns=3,
    )  # fmt: skip
    return replace(plain, **changes)


def hot(**changes: Any) -> ChunkRecord:
    """The same chunk from the cache, a tenth as long."""
    plain = {
        "ended": 1000.1, "read_s": 0.01, "decode_s": 0.0, "process_s": 0.09, "open_s": 0.01,
        "causes": {"hit": 3}, "cause_bytes": {"hit": 3000}, "cache_bytes": 3000, "origin_bytes": 0,
    }  # fmt: skip
    return chunk(**{**plain, **changes})


def record(*chunks: ChunkRecord, **changes: Any) -> RunRecord:
    """A run of two hosts with one thread each."""
    plain: dict[str, Any] = {
        "run": "0123456789ab", "name": "cycle", "began": 999.9, "wall_s": 2.0,
        "hosts": {"host-0": 1, "host-1": 1}, "chunks": chunks,
        "settings": {"chunksize": 100}, "versions": {"hepcache": "0"},
        "machine": {"cores": 2, "storage": {"filesystem": "ext4", "rotational": None}},
    }  # fmt: skip
    return RunRecord(**{**plain, **changes})


@pytest.fixture(scope="session")
def make_chunk() -> Callable[..., ChunkRecord]:
    return chunk


@pytest.fixture(scope="session")
def make_hot() -> Callable[..., ChunkRecord]:
    return hot


@pytest.fixture(scope="session")
def make_record() -> Callable[..., RunRecord]:
    return record


@pytest.fixture(scope="session")
def report() -> CycleReport:
    """Three cycles of two hosts: cold, half warm with one stolen chunk, hot."""
    other = {"host": "host-1", "worker": "w1", "owner": "host-1", "start": 100, "stop": 200}
    stolen = {"host": "host-1", "worker": "w1", "start": 100, "stop": 200}
    return CycleReport(
        (
            record(chunk(), chunk(**other), wall_s=2.0),
            record(
                hot(),
                chunk(**stolen, causes={"stolen": 3}, cause_bytes={"stolen": 3000}),
                wall_s=1.2,
            ),
            record(hot(), hot(**other), wall_s=0.2),
        ),
        title="Three <cycles>",
    )


@pytest.fixture
def comparison(report: CycleReport) -> Comparison:
    """Three cycles against the first two of them at half the time, with another setting."""
    faster = [
        replace(one, wall_s=one.wall_s / 2, settings={"chunksize": 200})
        for one in report.records[:2]
    ]
    return Comparison(report, CycleReport(tuple(faster)), ("a <b>", "new"))


@pytest.fixture
def messy(make_record, make_chunk, make_hot) -> CycleReport:
    """A cold cycle, and one in which every kind of thing goes wrong.

    Every chunk that reads loses 0.3 s and 0.2 s, and 0.09 s of opening.
    """
    places = [
        {"path": f"/data/<{n}>.root", "uuid": f"u{n}", "dataset": "tt" if n < 3 else "dy",
         "host": f"host-{n % 2}", "worker": f"w{n % 2}", "owner": f"host-{n % 2}",
         "began": 1000.0 + n, "ended": 1001.0 + n}
        for n in range(5)
    ]  # fmt: skip
    cold = make_record(*(make_chunk(**one) for one in places), columns=["a", "b", "c"])
    chunks = [
        make_hot(**{**places[0], "ended": 1000.1}),
        make_chunk(**places[1], causes={"evicted": 2, "hit": 1},
                   cause_bytes={"evicted": 2000, "hit": 1000}),
        make_chunk(**{**places[2], "host": "host-1", "worker": "w1"},
                   causes={"stolen": 3}, cause_bytes={"stolen": 3000}),
        make_chunk(**places[3], causes={"corrupt": 1, "hit": 2},
                   cause_bytes={"corrupt": 1000, "hit": 2000}),
        make_chunk(**{**places[4], "uuid": "replaced"}),
    ]  # fmt: skip
    run = make_record(*chunks, columns=["a", "b", "c"], wall_s=5.5)
    return CycleReport((cold, run), "A <messy> report")
