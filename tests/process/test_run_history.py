"""What a run teaches the next one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from coffea.nanoevents import BaseSchema, NanoAODSchema

from hepcache.catalogue.catalogue import Catalogue
from hepcache.process.run_history import RunHistory, work_name
from hepcache.telemetry import ChunkRecord, DerivedUse


class Kept(dict[tuple[str, str], bytes]):
    def blob_get(self, kind: str, key: str) -> bytes | None:
        return self.get((kind, key))

    def blob_put(self, kind: str, key: str, data: bytes, *, most: int | None = None) -> None:
        self[kind, key] = data


@dataclass(frozen=True)
class Part:
    uuid: str
    segment: int


def record(
    uuid: str, segment: int, seconds: float, host: str = "a", *, read_s: float = 0.0
) -> ChunkRecord:
    return ChunkRecord(
        dataset="d", path="p", uuid=uuid, tree="Events", start=segment, stop=segment + 100,
        segment=segment, host=host, worker="w", owner=host, began=50.0, ended=50.0 + seconds,
        open_s=0, read_s=read_s, decode_s=0, process_s=seconds, causes={}, cause_bytes={},
        cache_bytes=0, origin_bytes=int(read_s > 0), columns=1,
    )  # fmt: skip


def test_nothing_is_expected_before_anything_was_seen() -> None:
    assert RunHistory().seconds([Part("u", 0)], [10]) is None


def test_a_chunk_is_expected_to_take_what_it_took_without_the_reading() -> None:
    known = RunHistory()
    known.learn([record("u", 0, 5.0, read_s=3.0), record("u", 100, 1.0)], ["Jet_pt"])
    found = known.seconds([Part("u", 0), Part("u", 100), Part("u", 100)], [100, 100, 50])
    assert found == pytest.approx([2.0, 1.0, 0.5])
    assert known.columns == ["Jet_pt"]


def test_what_was_computed_to_be_stored_is_read_the_next_time() -> None:
    known = RunHistory()
    stored = {"scores": DerivedUse(computed=1, seconds=2.0, causes={"new": 1})}
    unstored = {"scores": DerivedUse(computed=1, seconds=2.0, reason="it writes files")}
    chunks = [record("u", start, 5.0) for start in (0, 100)]
    chunks = [replace(chunks[0], derived=stored), replace(chunks[1], derived=unstored)]
    known.learn(chunks, [])
    assert known.seconds([Part("u", 0), Part("u", 100)], [100, 100]) == pytest.approx([3.0, 5.0])


def test_the_imports_of_a_process_are_not_part_of_its_first_chunk() -> None:
    known = RunHistory()
    first = replace(record("u", 0, 9.0), first=True)
    known.learn([first, record("u", 100, 1.0), record("u", 200, 1.0)], ["Jet_pt"])
    assert known.seconds([Part("u", 0), Part("u", 100)], [100, 100]) == pytest.approx([1.0, 1.0])
    # A later process imports again; what was known of its chunk stays.
    known.learn([replace(record("u", 200, 9.0), first=True), record("u", 0, 1.0)], [])
    assert known.seconds([Part("u", 200)], [100]) == pytest.approx([1.0])
    # Where there is nothing else it is better than nothing.
    alone = RunHistory()
    alone.learn([first], [])
    assert alone.seconds([Part("u", 0)], [100]) == pytest.approx([9.0])


def test_chunks_whose_results_were_reused_teach_nothing() -> None:
    known = RunHistory()
    known.learn([record("u", 0, 5.0, "a"), record("u", 100, 5.0, "b")], ["Jet_pt"])
    before = replace(known, segments={"u": dict(known.segments["u"])}, speeds=dict(known.speeds))
    loaded = [replace(record("u", start, 0.001, "a"), outcome="reused") for start in (0, 100)]
    known.learn(loaded, [])
    known.learn([*loaded[1:], record("u", 0, 5.0, "b")], ["Jet_pt"])
    assert known == before


def test_what_was_not_seen_takes_as_long_as_its_file_or_as_any() -> None:
    known = RunHistory()
    known.learn([record("u", 0, 2.0), record("u", 100, 4.0), record("v", 0, 9.0)], [])
    assert known.seconds([Part("u", 500), Part("w", 0)], [100, 100]) == pytest.approx([3.0, 6.0])


def test_fast_hosts_are_told_from_short_chunks() -> None:
    known = RunHistory()
    for _ in range(8):
        known.learn(
            [
                record(uuid, segment, length * (2.0 if host == "slow" else 1.0), host)
                for uuid, length in (("u", 1.0), ("v", 7.0))
                for segment, host in ((0, "slow"), (100, "fast"), (200, "slow"), (300, "fast"))
            ],
            [],
        )
    assert known.speeds["fast"] / known.speeds["slow"] == pytest.approx(2.0, rel=0.1)
    short, long = known.seconds([Part("u", 0), Part("v", 0)], [100, 100]) or ()
    assert long / short == pytest.approx(7.0)


def test_noise_gives_no_host_another_speed() -> None:
    known = RunHistory()
    known.learn([record("u", 0, 1.0, "a"), record("u", 100, 1.06, "b")], [])
    assert known.speeds == {}


def test_it_outlives_the_process_and_distrusts_what_it_finds() -> None:
    kept, known = Kept(), RunHistory()
    known.learn([record("u", 0, 2.0, "a"), record("u", 100, 1.0, "b")], ["Jet_pt"])
    known.save(kept, "work")
    assert RunHistory.load(kept, "work") == known
    assert RunHistory.load(kept, "other") == RunHistory()
    for damaged in (b"{", b"[]", b'{"version": 9}', b'{"version": 1, "segments": 3}'):
        kept.blob_put("experience", "work", damaged)
        assert RunHistory.load(kept, "work") == RunHistory()


def test_work_that_was_done_last_is_remembered(tmp_path: Path) -> None:
    known = RunHistory()
    known.learn([record("u", 0, 2.0)], ["Jet_pt"])
    with Catalogue(tmp_path / "catalogue.sqlite") as catalogue:
        catalogue.blob_put("other", "kind", b"stays")
        known.save(catalogue, "first")
        for number in range(40):
            known.save(catalogue, f"{number}")
            known.save(catalogue, "used")
        assert RunHistory.load(catalogue, "used") == known == RunHistory.load(catalogue, "39")
        assert RunHistory.load(catalogue, "first") == RunHistory()
        assert catalogue.blob_get("other", "kind") == b"stays"


def function(code: str, **names: Any) -> Any:
    scope = dict(names)
    exec(compile(code, "a notebook", "exec"), scope)
    return scope["proc"]


CODES = [
    "def proc(events): return {'n': len(events)}",
    "def proc(events): return {'n': sum(events)}",
    "def proc(events): return {'m': len(events)}",
    "def proc(events, weight=1): return {'n': len(events)}",
    "def proc(events, weight=2): return {'n': len(events)}",
    "def proc(events, *, weight=2): return {'n': len(events)}",
    "def proc(events): return (lambda: {'n': len(events)})()",
    "def proc(events): return (lambda: {'n': len(events) + 1})()",
    "class proc:\n    def process(self, events): return 1",
    "class proc:\n    def process(self, events): return 2",
    "class proc:\n    cut = 30\n    def process(self, events): return 2",
    "class proc:\n    cut = 40\n    def process(self, events): return 2",
    "class proc:\n    @staticmethod\n    def f(): return 1\n    def process(self, e): ...",
    "class proc:\n    @staticmethod\n    def f(): return 2\n    def process(self, e): ...",
    "class proc:\n    @property\n    def f(self): return 1",
    "class proc:\n    @property\n    def f(self): return 2",
    "class base:\n    def f(): return 1\nclass proc(base): pass",
    "class base:\n    def f(): return 2\nclass proc(base): pass",
]


def test_work_is_known_by_its_code() -> None:
    names = [work_name(function(code), NanoAODSchema) for code in CODES]
    assert len(set(names)) == len(CODES)
    for code, name in zip(CODES, names, strict=True):
        # Where it stands, and in which instance, is no matter.
        again = function("\n\n" + code)
        again = again() if isinstance(again, type) else again
        assert work_name(again, NanoAODSchema) == name != work_name(again, BaseSchema)


class Pickled:
    def process(self) -> int:
        return 1


def test_work_is_the_same_after_it_was_sent() -> None:
    before = work_name(Pickled(), BaseSchema)
    pickle.dumps(Pickled(), 2)
    assert "__slotnames__" in vars(Pickled)
    assert work_name(Pickled(), BaseSchema) == before


def decorated(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def proc(events: Any) -> Any:
        return function(events)

    return proc


def test_what_a_function_wraps_is_its_code_too() -> None:
    codes = [f"def proc(events): return {number}" for number in range(2)]
    first, second = (work_name(decorated(function(code)), None) for code in codes)
    assert first != second
    first, second = (work_name(partial(function(codes[0]), cut=cut), None) for cut in (1, 2))
    assert first != second

    def recursive(events: Any) -> Any:
        return recursive(events) if events else 0

    assert work_name(recursive, None) == work_name(recursive, None)


def test_the_name_is_the_same_in_every_process() -> None:
    code = (
        "from coffea import processor\n"
        "from hepcache.process.run_history import work_name\n"
        "class Proc(processor.ProcessorABC):\n"
        "    def process(self, events): return events in {'a', 'b', 'c', 'd', None, 1}\n"
        "    def postprocess(self, out): return out\n"
        "print(work_name(Proc(), None))"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(names) == 1
