from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import uproot


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for dataset, entries in (("DY", 30), ("TT", 12)):
        path = tmp_path / "data" / dataset / "a.root"
        path.parent.mkdir(parents=True)
        with uproot.recreate(path) as file:
            file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(entries)})
        os.utime(path, (1, 1))
    return tmp_path / "data"


def hepcache(*arguments: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DASK_HEPCACHE__CATALOGUE": str(home / "c.sqlite"),
                   "COLUMNS": "120"}  # fmt: skip
    command = [str(Path(sys.executable).with_name("hepcache"))]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env=environment,
        check=False, timeout=120,
    )  # fmt: skip


def test_add_show_forget(directory: Path, tmp_path: Path) -> None:
    added = hepcache("catalogue", "add", directory, home=tmp_path)
    assert added.returncode == 0, added.stderr
    assert "2 datasets, 2 files" in added.stdout
    shown = hepcache("catalogue", "show", home=tmp_path)
    assert "2 trees, 42 entries" in shown.stdout
    shown = hepcache("catalogue", "show", directory / "TT", "--json", home=tmp_path)
    found = json.loads(shown.stdout)
    assert [file["entries"] for file in found["files"]] == [12]
    assert found["catalogue"] == str(tmp_path / "c.sqlite")
    forgot = hepcache("catalogue", "forget", directory / "TT", home=tmp_path)
    assert forgot.stdout == "Forgot 1 tree.\n"
    assert json.loads(
        hepcache("catalogue", "forget", "--all", "--json", home=tmp_path).stdout
    ) == {"forgotten": 1}


def test_bad_files_are_named_in_one_go(directory: Path, tmp_path: Path) -> None:
    (directory / "TT" / "b.root").write_bytes(b"hello")
    (directory / "TT" / "c.root").touch()
    refused = hepcache("catalogue", "add", directory, home=tmp_path)
    assert refused.returncode == 1
    assert "2 files can't be analysed" in refused.stderr
    assert "b.root: not a ROOT file" in refused.stderr
    assert "c.root: the file is empty" in refused.stderr
    assert "Traceback" not in refused.stderr
    skipped = hepcache("catalogue", "add", directory, "--skip-bad-files", "--json", home=tmp_path)
    assert skipped.returncode == 0
    out = json.loads(skipped.stdout)
    assert len(out["files"]) == len(out["problems"]) == 2


def test_bad_arguments_exit_with_2(tmp_path: Path) -> None:
    for arguments in (["forget"], ["forget", "a", "--all"], ["add"], ["nonsense"]):
        refused = hepcache("catalogue", *arguments, home=tmp_path)
        assert refused.returncode == 2, refused
        assert "Traceback" not in refused.stderr
