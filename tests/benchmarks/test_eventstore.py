"""The event store's benchmark checks what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hepcache.eventstore import connect
from hepcache_bench import eventstore as benchmark
from hepcache_bench.eventstore_readers import measure_readers, wait_for_events, write_events


def test_a_small_run_has_every_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "_POINTS", 20)
    taken: dict[str, list[float]] = {}
    benchmark._run(benchmark.make_sample(160), tmp_path, taken)
    rows, ratios = benchmark._figures({name: one[0] for name, one in taken.items()}, 160)
    assert {row["case"] for row in rows} == set(taken)
    assert set(ratios) >= {
        "memory_read_events_per_core_s",
        "persistent_read_events_per_s",
        "memory_ingest_events_per_core_s",
        "persistent_ingest_events_per_s",
        "point_load_us_over_limit",
        "column_scan",
    }
    assert all(one > 0 for one in ratios.values())


def test_look_ups_are_of_every_size_beside_lmdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "_LOOK_UPS", 50)
    monkeypatch.setattr(benchmark, "_EACH", 300)
    found = benchmark.look_up_times(tmp_path, (100, 1000))
    names = ("look-up", "peer look-up")
    assert set(found) == {(name, size) for name in names for size in (100, 1000)}
    assert all(taken_s > 0 for taken_s in found.values())


def test_events_that_are_not_there_are_seen() -> None:
    with pytest.raises(RuntimeError, match="1 of 3 events"):
        benchmark._second_time(lambda number: number != 2, [1, 2, 3])


@pytest.mark.slow
def test_many_readers_are_measured_beside_one(tmp_path: Path) -> None:
    rows, ratios = measure_readers(
        tmp_path, workers=4, hosts=2, readers=(1, 4), events_each=30, note=lambda _: None
    )
    assert [row["readers"] for row in rows] == [1, 4]
    assert 0 < ratios["readers_busy"] <= 1
    # Nobody is done before the waiting is, whatever the machine does besides.
    assert ratios["readers_wall_over_ideal"] >= 1
    assert ratios["readers_cpu_over_reference"] > 0


def test_events_take_what_they_say() -> None:
    with connect("mem://") as store:
        work_s, numbers = write_events(store, 3, 50)
        done = store.process("bench", wait_for_events, products=["work"])
    assert done.value == {"numbers": numbers}
    assert done.events == 50
    assert done.wall_s >= work_s > 0


def test_wrong_data_is_seen() -> None:
    sample = benchmark.make_sample(160)
    wrong = dict.fromkeys(sample[0][1], (160, 0.0))
    with pytest.raises(RuntimeError, match="sum"):
        benchmark._compare(wrong, sample)
