from __future__ import annotations

from pathlib import Path

import pytest

from hepcache_bench.object_servers import find_gateway, missing_for_ceph, missing_for_s3
from hepcache_bench.objects import bench
from hepcache_bench.objects_scan import interleaved


def test_what_runs_is_measured_and_what_does_not_is_named(tmp_path: Path) -> None:
    result = bench(quick=True, out=tmp_path, start=False, megabytes=4, rounds=1)
    assert set(result.ratios) == {"uproot_local"}
    notes = {row["case"]: row["note"] for row in result.rows if "note" in row}
    assert set(notes) == {"s3", "rados"}
    scans = [row for row in result.rows if row["case"] == "scan"]
    assert {row["mapping"] for row in scans} == {"cluster", "cluster_column", "page", "file"}
    assert all(row["read_bytes_per_s"] > 0 for row in scans)
    assert (tmp_path / "objects.png").stat().st_size > 1000


def test_ratios_of_a_store_that_runs() -> None:
    uri = "ntpl+mem://bench/objects"
    result = bench(quick=True, out=None, rados=uri, start=False, megabytes=4, rounds=1)
    for label in ("zstd", "plain"):
        wanted = {"of_raw", "8_readers_of_raw", "8_readers_of_one"}
        assert {f"rados_{label}_{name}" for name in wanted} <= set(result.ratios)


def test_readers_take_turns() -> None:
    calls: list[str] = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b"] * 3
    assert set(seconds) == {"a", "b"}
    assert seconds["a"] == pytest.approx(0, abs=1)


def test_what_is_not_installed_is_named_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GOPATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "go install" in str(missing_for_s3())
    assert "apt-get install" in str(missing_for_ceph())
    program = tmp_path / "versitygw"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_gateway() == str(program)
    assert missing_for_s3() is None
