"""The cycles benchmark on a small sample, with real workers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import uproot

from hepcache.bench.cycles import bench, cycles_result, run_cycles
from hepcache.bench.plan import BENCHMARK_COLUMNS, QUICK, CyclesPlan
from hepcache.errors import BadFileError, BadFilesetError, ConfigurationError
from hepcache.report import CycleReport
from hepcache.samples.nanoaod import write_nanoaod


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    write_nanoaod(
        directory, events=4000, files=4, cluster=1000, compression="zstd:1", jobs=1,
        branches=BENCHMARK_COLUMNS,
    )  # fmt: skip
    return directory


@pytest.fixture(scope="module")
def ran(sample, tmp_path_factory) -> tuple[CycleReport, list[str], list[int]]:
    """Three cycles, what was said meanwhile, and how many cycles were told of."""
    notes: list[str] = []
    told: list[int] = []
    plan = CyclesPlan(
        files=str(sample), cycles=3, directory=tmp_path_factory.mktemp("scratch"),
        origin_bandwidth="20 MB/s",
    )  # fmt: skip
    report = run_cycles(
        plan, title="test", note=notes.append, on_cycle=lambda one: told.append(len(one))
    )
    assert list(plan.directory.iterdir()) == []
    return report, notes, told


def test_each_file_gives_what_it_has_of_the_published_columns(shared_data, tmp_path):
    paths = [shared_data / "nanoaod" / name for name in ("nano_tt_v15.root", "nano_dy.root")]
    plan = CyclesPlan(files=[str(path) for path in paths], cycles=2, hosts=1, directory=tmp_path)
    cold, hot = run_cycles(plan).summaries
    assert cold.events == hot.events == 240
    assert (hot.hit_ratio, hot.origin_bytes) == (1, 0)


def test_the_first_cycle_reads_the_origin_and_the_others_nothing(ran, sample):
    report, _, told = ran
    first, *hot = report.summaries
    assert told == [1, 2, 3]
    assert first.hit_ratio == 0
    size = sum(path.stat().st_size for path in sample.glob("*.root"))
    # Two hosts may each need the branch list of a file that they share.
    assert 0.5 * size < first.origin_bytes < 2 * size
    for one in hot:
        assert one.hit_ratio == 1
        assert one.origin_bytes == 0
        assert one.events == first.events == 4000
        assert one.decoded_bytes == first.decoded_bytes == one.cache_bytes
    # The emulated link is the least the cold cycle can take.
    assert first.wall_s > first.origin_bytes / 20e6


def test_both_hosts_take_part(ran):
    report, notes, _ = ran
    assert {host.host for one in report.summaries for host in one.hosts} == {"host-0", "host-1"}
    for one in report.summaries:
        assert sum(host.chunks for host in one.hosts) == 4
    assert any("2 hosts" in note for note in notes)


def test_the_record_says_how_it_was_run(ran):
    settings = ran[0].records[0].settings
    assert settings["columns"] == 120
    assert settings["origin bandwidth"] == "20 MB/s"


def test_the_ratios_are_the_documented_ones(ran):
    result = cycles_result(ran[0])
    walls = [one.wall_s for one in ran[0].summaries]
    assert result.ratios == {
        "cycle1_over_cycle2": walls[0] / walls[1],
        "cycle1_over_last": walls[0] / walls[2],
        "hit_ratio_cycle2": 1.0,
        "origin_bytes_cycle2": 0.0,
    }
    assert [row["cycle"] for row in result.rows] == [1, 2, 3]
    json.loads(result.to_json())


def test_real_cycles_are_explained_and_forecast(ran, tmp_path):
    report = ran[0]
    cold, *hot = report.summaries
    first, last = report.explain(1), report.explain()
    assert list(first.by_reason) == ["cold"]
    assert first.total.columns == sum(cold.causes.values())
    assert first.total.nbytes == cold.decoded_bytes
    assert first.total.origin_bytes == cold.origin_bytes
    assert set(first.by_host) == {host.host for host in cold.hosts}
    assert len(first.by_file) == 4
    assert cold.read_s + cold.decode_s <= first.total.lost_s <= cold.busy_s
    assert 0 < first.forecast.wall_s < cold.wall_s
    # The hot cycles needed nothing, and tell how good the forecasts were.
    assert report.explain(2).misses == last.misses == ()
    # Where one host was held up, the other is expected to take a chunk of it.
    assert 0.5 <= last.forecast.hit_ratio <= 1
    expected = [first.forecast.wall_s, report.explain(2).forecast.wall_s]
    assert [one.forecast_s for one in last.forecast.checks] == expected
    assert [one.actual_s for one in last.forecast.checks] == [one.wall_s for one in hot]
    again = CycleReport.read(report.to_json(tmp_path / "report.json"))
    assert again.explain().to_dict() == last.to_dict()


def test_one_cycle_has_no_second(ran):
    result = cycles_result(CycleReport(ran[0].records[:1]))
    assert result.ratios == {"cycle1_over_last": 1.0}


def test_the_command_writes_its_report(sample, tmp_path, monkeypatch):
    """The options reach the plan; the cluster itself is tested above."""
    seen = []

    def ran_before(plan, **_):
        seen.append(plan)
        return CycleReport(())

    monkeypatch.setattr("hepcache.bench.cycles.run_cycles", ran_before)
    monkeypatch.setattr("hepcache.bench.cycles.cycles_result", len)
    bench(quick=True, out=tmp_path, columns="run, event", more_files=[str(sample)], cycles=2)
    (plan,) = seen
    assert plan == replace(QUICK, files=[str(sample)], cycles=2, columns=["run", "event"])
    assert CycleReport.read(tmp_path / "report.json") == CycleReport(())
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"cycles": 0}, ConfigurationError, "cycles"),
        ({"origin_bandwidth": "fast"}, ConfigurationError, "fast"),
        ({"columns": ["run", "nope"]}, ConfigurationError, "nope"),
        ({"files": "/not/there.root"}, BadFileError, "/not/there.root"),
        ({"files": "/not/there/*.root"}, BadFilesetError, "/not/there"),
    ],
)
def test_mistakes_are_found_before_a_cluster_starts(sample, tmp_path, changes, error, words):
    plan = replace(CyclesPlan(files=str(sample), directory=tmp_path), **changes)
    with pytest.raises(error, match=words):
        run_cycles(plan)
    assert list(tmp_path.iterdir()) == []


def test_files_without_the_columns_are_refused(tmp_path):
    with uproot.recreate(tmp_path / "other.root") as file:
        file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(3)})
    with pytest.raises(ConfigurationError, match="NanoAOD"):
        run_cycles(CyclesPlan(files=str(tmp_path / "other.root"), directory=tmp_path))
