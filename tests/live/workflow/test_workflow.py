"""The workflow of examples/: what it makes, and that a second run makes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import uproot

from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.samples.nanoaod import write_nanoaod

# What examples/hh_bbll.py touches; the sample has more.
COLUMNS = "genWeight,run,luminosityBlock,event,Electron_*,Muon_*,Jet_*,PuppiMET_*"
ROOT = Path(__file__).parents[3]


def contents(directory: Path) -> dict[str, int]:
    """Return all files below a directory with the times at which they were written."""
    return {
        str(path.relative_to(directory)): path.stat().st_mtime_ns
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.timeout(900)
def test_a_second_run_does_nothing_and_a_lost_plot_is_drawn_again(tmp_path: Path) -> None:
    datasets = {
        name: [str(one) for one in write_nanoaod(
            tmp_path / name, events=600, files=2, compression="zlib:1", cluster=300, seed=seed,
            branches=BENCHMARK_COLUMNS, jobs=1,
        )]
        for seed, name in enumerate(["HH", "DY"])
    }  # fmt: skip
    (tmp_path / "datasets.json").write_text(json.dumps(datasets))
    out = tmp_path / "results"

    def run() -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples/workflow.py"), "--datasets", "datasets.json",
             "--out", "results", "--cycles", "2", "--chunksize", "300",
             "--columns", COLUMNS],
            cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"),
                 "LAW_HOME": str(tmp_path / "law")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    assert "4 ran successfully" in run()  # two copies of datasets, cycles, plots
    made = contents(out)
    copies = sorted(out.glob("files/*/*.root"))
    assert [(path.parent.name[:9], path.name) for path in copies] == [
        (f"{name}-zstd5-", f"nano_{number:04d}.root") for name in ("DY", "HH") for number in (0, 1)
    ]
    with uproot.open(copies[0]) as file:
        kept = set(file["Events"].keys())
    assert "Jet_btagDeepFlavB" in kept
    assert "Tau_pt" not in kept
    assert {
        "v1/out.coffea",
        "v1/report.json", "v1/plots/cycles.pdf", "v1/plots/histograms.pdf",
        "v1/plots/report.html",
    } <= made.keys()  # fmt: skip
    report = json.loads((out / "v1/report.json").read_text())
    assert [one["events"] for one in report["summaries"]] == [1200, 1200]
    assert report["summaries"][1]["origin_bytes"] == 0

    assert "Did not run any tasks" in run()
    assert contents(out) == made

    (out / "v1/plots/histograms.pdf").unlink()
    assert "1 ran successfully" in run()
    again = contents(out)
    assert again.keys() == made.keys()
    unchanged = {name for name in made if "/plots/" not in name}
    assert {name: again[name] for name in unchanged} == {name: made[name] for name in unchanged}
