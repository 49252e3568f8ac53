"""The event store's benchmark checks what it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from hepcache_bench import eventstore as benchmark


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


def test_wrong_data_is_seen() -> None:
    sample = benchmark.make_sample(160)
    wrong = dict.fromkeys(sample[0][1], (160, 0.0))
    with pytest.raises(RuntimeError, match="sum"):
        benchmark._compare(wrong, sample)
