from __future__ import annotations

from pathlib import Path

import dask.config
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from tests.formats.conftest import write_mixed_tree

from hepcache.process import Runner
from hepcache.process.worker_state import worker_state
from hepcache.report import CycleReport, RunRecord


def jets(events: object) -> dict[str, int]:
    return {"jets": int(events.nJet.to_numpy().sum())}


def run(path: Path, mode: str) -> tuple[dict[str, int], RunRecord]:
    runner = Runner(IterativeExecutor(status=False), schema=BaseSchema)
    with dask.config.set({"hepcache.cache.mode": mode}):
        output = runner({"data": {"files": {str(path): "Events"}}}, jets)
    worker_state().cache.flush()
    assert runner.run_record is not None
    return output, runner.run_record


def test_in_the_mode_fscache_no_column_is_kept(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    expected, _ = run(path, "fscache")
    output, record = run(path, "fscache")
    assert output == expected
    assert record.settings["cache"] == "fscache"
    assert {cause for one in record.chunks for cause, n in one.causes.items() if n} == {"miss"}
    assert sum(one.origin_bytes for one in record.chunks) > 0
    assert not worker_state().cache.residency()


@pytest.mark.parametrize("mode", ["columns", "both"])
def test_else_the_second_pass_reads_the_cache(tmp_path: Path, mode: str) -> None:
    path = write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    expected, _ = run(path, mode)
    output, record = run(path, mode)
    assert output == expected
    assert record.settings["cache"] == mode
    assert sum(one.origin_bytes for one in record.chunks) == 0


def test_the_report_says_when_the_first_chunk_came(tmp_path: Path) -> None:
    from dataclasses import replace

    from rich.console import Console

    _, record = run(write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1)), "columns")
    assert record.first_chunk_s is None
    waited = replace(record, first_chunk_s=12.5)
    assert RunRecord.from_dict(waited.to_dict()) == waited
    console = Console(width=120)
    with console.capture() as shown:
        console.print(CycleReport((waited,)))
    assert "12.5 s after the workers were asked for" in shown.get()
    page = CycleReport((waited,)).to_html(tmp_path / "report.html").read_text()
    assert "after the workers were asked for" in page
