"""What a record counts adds up to what the processor was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import distributed
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from tests.formats.conftest import write_mixed_tree

import hepcache
from hepcache.cache.contents import stored_columns
from hepcache.process.worker_state import forget, worker_state
from hepcache.report import RunRecord
from hepcache.report.summary import summarise

TOUCHED = ("event", "met", "matrix", "Jet_pt", "Jet_id", "nJet")
SEGMENTS = 300  # entries: the file below becomes three
CHUNKSIZES = (40, 100, 300, 600, 100_000)


def touch(events: Any) -> dict[str, int]:
    return {name: int(ak.count(events[name])) for name in TOUCHED}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed_tree(tmp_path_factory.mktemp("counts") / "tree.root", uproot.ZSTD(1))


@pytest.fixture(scope="module")
def sizes(path: Path) -> dict[str, int]:
    """Decoded bytes of the file's columns, lists without their offsets."""
    with uproot.open(path) as file:
        arrays = file["Events"].arrays(TOUCHED)
    return {name: int(np.asarray(ak.flatten(arrays[name], axis=None)).nbytes) for name in TOUCHED}


@pytest.fixture(autouse=True)
def _segments() -> Iterator[None]:
    with dask.config.set({"hepcache.segment.entries": SEGMENTS}):
        yield


def run(path: Path, chunksize: int, executor: Any = None, processor: Any = touch) -> RunRecord:
    executor = executor or IterativeExecutor(status=False)
    runner = hepcache.Runner(executor, schema=BaseSchema, chunksize=chunksize)
    runner({"data": {"files": {str(path): "Events"}}}, processor)
    assert runner.run_record is not None
    return runner.run_record


def check(record: RunRecord, sizes: dict[str, int]) -> Counter[str]:
    """Check that a record adds up, and return its columns of chunks by cause."""
    causes: Counter[str] = Counter()
    for chunk in record.chunks:
        assert chunk.columns == len(sizes) == sum(chunk.causes.values())
        assert chunk.cache_bytes == chunk.cause_bytes.get("hit", 0)
        causes.update(chunk.causes)
    assert set(record.columns) == sizes.keys()
    assert summarise(record).decoded_bytes == sum(sizes.values())
    return causes


@pytest.mark.parametrize("chunksize", CHUNKSIZES)
def test_a_cycle_counts_every_byte_once_and_a_cold_one_hits_nothing(
    chunksize: int, path: Path, sizes: dict[str, int]
) -> None:
    cold = run(path, chunksize)
    causes = check(cold, sizes)
    assert causes == {"miss": len(TOUCHED) * len(cold.chunks)}
    hot = run(path, chunksize)
    assert check(hot, sizes) == {"hit": causes["miss"]}
    assert summarise(hot).cache_bytes == sum(sizes.values())


def test_workers_and_thieves_count_alike(
    path: Path, sizes: dict[str, int], hepcache_client: distributed.Client
) -> None:
    executor = hepcache.Executor(client=hepcache_client, status=False)
    causes = check(run(path, 40, executor), sizes)
    assert not causes["hit"]
    assert set(check(run(path, 40, executor), sizes)) <= {"hit", "stolen"}


def test_what_was_there_before_the_run_hits(path: Path, sizes: dict[str, int]) -> None:
    few = {name: sizes[name] for name in ("met", "nJet", "Jet_pt")}

    def touch_few(events: Any) -> dict[str, int]:
        return {name: int(ak.count(events[name])) for name in few}

    check(run(path, 600, processor=touch_few), few)
    # Another chunksize of the same segments, and what an unfinished write may hold back.
    record = run(path, 40)
    assert check(record, sizes) == {
        "hit": len(few) * len(record.chunks),
        "miss": (len(sizes) - len(few)) * len(record.chunks),
    }
    assert summarise(record).cache_bytes == sum(few.values())


def test_of_several_segments_the_one_that_was_missing_counts(
    path: Path, sizes: dict[str, int]
) -> None:
    run(path, 100_000)
    worker_state().cache.flush()
    (last,) = [
        one for one in stored_columns(worker_state().cache.layout)
        if one.key and one.key.column == "met" and one.key.start == 550
    ]  # fmt: skip
    worker_state().cache.discard(last.key)
    record = run(path, 100_000)
    assert check(record, sizes) == {"hit": len(sizes) - 1, "miss": 1}
    assert summarise(record).cause_bytes["miss"] == sizes["met"] * 450 // 1000


@pytest.mark.parametrize("cause", ["evicted", "corrupt"])
def test_every_chunk_of_a_segment_knows_why_it_was_missing(
    cause: str, path: Path, sizes: dict[str, int]
) -> None:
    run(path, 100_000)
    worker_state().cache.flush()
    stored = [
        one
        for one in stored_columns(worker_state().cache.layout)
        if one.key and one.key.column == "met"
    ]
    if cause == "evicted":
        worker_state().cache.remove(stored)
    else:
        for one in stored:
            content = bytearray(Path(one.path).read_bytes())
            content[-70] ^= 1
            Path(one.path).write_bytes(content)
        forget()
    record = run(path, 40)
    others = len(sizes) - 1
    assert check(record, sizes) == {
        cause: len(record.chunks), "hit": others * len(record.chunks)
    }  # fmt: skip
    assert summarise(record).cause_bytes[cause] == sizes["met"]
    # Whatever was missing once is there now.
    assert set(check(run(path, 40), sizes)) == {"hit"}


def test_a_column_that_was_only_fetched_ahead_does_not_count(
    path: Path, sizes: dict[str, int]
) -> None:
    def sometimes(events: Any) -> dict[str, int]:
        if events.metadata["entrystart"] % 600 == 0:
            return touch(events)
        return {"met": int(ak.count(events.met))}

    for _ in range(2):
        record = run(path, 300, processor=sometimes)
        assert [chunk.columns for chunk in record.chunks] == [len(TOUCHED), 1, 1, 1]
        second = record.chunks[1]
        assert sum(second.cause_bytes.values()) == 4 * (second.stop - second.start)


def test_columns_that_are_warmed_count_without_being_touched(
    path: Path, sizes: dict[str, int]
) -> None:
    def nothing(events: Any) -> dict[str, int]:
        return {"events": len(events)}

    wanted = frozenset({"met", "Jet_pt"})
    files = hepcache.load_fileset({"data": {"files": {str(path): "Events"}}})
    fileset = type(files)(
        [type(spec)(spec.dataset, spec.path, spec.tree, None, wanted) for spec in files]
    )
    for cause in ("miss", "hit"):
        runner = hepcache.Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=100)
        runner(fileset, nothing)
        assert runner.run_record is not None
        found = {name: sizes[name] for name in (*wanted, "nJet")}
        assert set(check(runner.run_record, found)) == {cause}
