from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import uproot
from tests.cli.conftest import Hepcache


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for dataset, entries in (("DY", 30), ("TT", 12)):
        path = tmp_path / "data" / dataset / "a.root"
        path.parent.mkdir(parents=True)
        with uproot.recreate(path) as file:
            file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(entries)})
        os.utime(path, (1, 1))
    return tmp_path / "data"


def test_add_show_forget(directory: Path, tmp_path: Path, hepcache: Hepcache) -> None:
    code, out, err = hepcache("catalogue", "add", directory)
    assert (code, err) == (0, "")
    assert "2 datasets, 2 files" in out
    _, out, _ = hepcache("catalogue", "show")
    assert "2 trees, 42 entries" in out
    assert str(directory / "TT" / "a.root") in out
    _, out, _ = hepcache("catalogue", "show", directory / "TT", "--json")
    found = json.loads(out)
    assert [file["entries"] for file in found["files"]] == [12]
    assert found["catalogue"] == str(tmp_path / "c.sqlite")
    assert hepcache("catalogue", "forget", directory / "TT")[1] == "Forgot 1 tree.\n"
    _, out, _ = hepcache("catalogue", "forget", "--all", "--json")
    assert json.loads(out) == {"forgotten": 1}


def test_another_catalogue(directory: Path, tmp_path: Path, hepcache: Hepcache) -> None:
    other = tmp_path / "other.sqlite"
    hepcache("catalogue", "add", f"{directory}/TT/*.root", "--catalogue", other)
    assert json.loads(hepcache("catalogue", "show", "--json")[1])["files"] == []
    _, out, _ = hepcache("catalogue", "show", "--json", "--catalogue", other)
    assert len(json.loads(out)["files"]) == 1


def test_bad_files_are_named_in_one_go(directory: Path, hepcache: Hepcache) -> None:
    (directory / "TT" / "b.root").write_bytes(b"hello")
    (directory / "TT" / "c.root").touch()
    code, _, err = hepcache("catalogue", "add", directory)
    assert code == 1
    assert "2 files can't be analysed" in err
    assert "b.root (dataset TT): not a ROOT file" in err
    assert "c.root (dataset TT): the file is empty" in err
    code, out, err = hepcache("catalogue", "add", directory, "--skip-bad-files", "--json")
    assert code == 0
    assert len(json.loads(out)["files"]) == len(json.loads(out)["problems"]) == 2
    assert err.count("skipped ") == 2


def test_a_file_that_is_no_catalogue(tmp_path: Path, hepcache: Hepcache) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"hello")
    code, _, err = hepcache("catalogue", "show")
    assert code == 1
    assert "c.sqlite: the file is not a catalogue of hepcache; name another" in err


@pytest.mark.parametrize(
    "arguments", [["forget"], ["forget", "a", "--all"], ["add"], ["add", "a", "--jobs", "0"]]
)
def test_bad_arguments_exit_with_2(arguments: list[str], hepcache: Hepcache) -> None:
    code, out, err = hepcache("catalogue", *arguments)
    assert (code, out) == (2, "")
    assert err
