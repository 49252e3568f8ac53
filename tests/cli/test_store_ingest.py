from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hepcache.cli.eventstore import ingest, schema
from hepcache.eventstore import connect

app = typer.Typer()
app.command()(schema)
app.command()(ingest)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for group, rows in {"rec.slc": 4, "rec.none": 0}.items():
            for name in ("run", "subrun", "evt", "subevt", "x"):
                values = np.arange(rows, dtype="u4") % 2 + (name == "run")
                file[f"{group}/{name}"] = values[:, None]
    return tmp_path / "a.h5"


def test_the_schema_is_shown(path: Path) -> None:
    shown = CliRunner().invoke(app, ["schema", str(path)])
    assert shown.exit_code == 0
    assert "subevt: uint32 (counts)" in shown.output
    assert "rec.none" not in shown.output
    assert "1 more class without rows" in shown.output
    listed = json.loads(CliRunner().invoke(app, ["schema", str(path), "--json"]).output)
    assert [one["name"] for one in listed["classes"]] == ["rec.none", "rec.slc"]


def test_files_are_ingested_once(path: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    first = CliRunner().invoke(app, ["ingest", url, "nova", str(path)])
    assert first.exit_code == 0
    assert "2 events of 1 files" in first.output
    again = CliRunner().invoke(app, ["ingest", url, "nova", str(path), "--json"])
    [done] = json.loads(again.stdout)["files"]
    assert (done["events"], done["skipped_events"]) == (2, 2)
    with connect(url) as store:
        assert store["nova"][1][0][0]["rec.slc"].x.tolist() == [0, 0]
