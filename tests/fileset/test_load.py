from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from coffea.processor import Runner
from coffea.processor.executor import _PROTECTED_NAMES

from hepcache.errors import BadFilesetError
from hepcache.fileset import Fileset, FileSpec, load_fileset
from hepcache.fileset.load import RESERVED_METADATA

COFFEA_FORMS: list[tuple[Any, str | None]] = [
    ({"tt": ["a.root", "b.root"], "dy": ["c.root"]}, "Events"),
    ({"tt": {"files": ["a.root", "b.root"], "treename": "Runs"}}, "Events"),
    ({"tt": {"files": ["a.root"], "metadata": {"xs": 1.5, "is_mc": True}}}, "Events"),
    ({"tt": {"files": ["a.root"], "preload": ["Jet_pt", "nJet"]}}, "Events"),
    ({"tt": {"files": {"a.root": "Events", "b.root": "Runs"}}}, None),
    ({"tt": {"files": {"a.root": "Events"}, "metadata": {}}}, None),
    ({"tt": ["root://server:1094//store/a.root", "https://server/b.root?x=1"]}, "Events"),
]


def as_coffea_sees_it(fileset: Any, treename: str | None) -> list[tuple[Any, ...]]:
    metas = Runner._normalize_fileset(fileset, treename)
    return [(m.dataset, m.filename, m.treename, m.metadata, m.preload) for m in metas]


def as_we_see_it(fileset: Fileset) -> list[tuple[Any, ...]]:
    return [(s.dataset, s.path, s.tree, s.metadata, s.preload) for s in fileset]


@pytest.mark.parametrize(("source", "treename"), COFFEA_FORMS)
def test_forms_of_coffea_mean_what_they_mean_to_coffea(source: Any, treename: str | None) -> None:
    assert as_we_see_it(load_fileset(source, treename=treename)) == as_coffea_sees_it(
        source, treename
    )


@pytest.mark.parametrize(("source", "treename"), COFFEA_FORMS)
def test_to_coffea_loses_nothing(source: Any, treename: str | None) -> None:
    fileset = load_fileset(source, treename=treename)
    assert load_fileset(fileset.to_coffea()) == fileset
    assert as_coffea_sees_it(fileset.to_coffea(), None) == as_we_see_it(fileset)


@pytest.mark.parametrize(("source", "treename"), COFFEA_FORMS)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_json_files(source: Any, treename: str | None, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"fileset{suffix}"
    text = json.dumps(source).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if suffix.endswith("gz") else text)
    expected = load_fileset(source, treename=treename)
    assert load_fileset(path, treename=treename) == expected
    assert load_fileset(str(path), treename=treename) == expected


def test_reserved_words_are_those_of_coffea() -> None:
    assert RESERVED_METADATA == _PROTECTED_NAMES


@pytest.mark.parametrize("word", sorted(RESERVED_METADATA))
def test_reserved_metadata_is_refused(word: str) -> None:
    with pytest.raises(BadFilesetError, match=f"tt: metadata uses reserved words: {word}"):
        load_fileset({"tt": {"files": ["a.root"], "metadata": {word: 1}}}, treename="Events")


def test_the_most_specific_tree_name_wins() -> None:
    source = {
        "tt": {"files": {"a.root": "InFile", "b.root": None}, "treename": "InDataset"},
        "dy": {"files": {"c.root": {"object_path": "InObject"}, "d.root:InPath": None}},
        "ww": ["e.root"],
    }
    trees = [spec.tree for spec in load_fileset(source, treename="Argument")]
    assert trees == ["InFile", "InDataset", "InObject", "InPath", "Argument"]


def test_filesets_of_coffeas_dataset_tools() -> None:
    source = {
        "tt": {
            "files": {
                "a.root": {"object_path": "Events", "steps": [[0, 50], [50, 90]],
                           "num_entries": 90, "uuid": "x"},
                "b.root": {"object_path": "Events", "steps": None},
            },
            "form": None,
            "metadata": None,
        }
    }  # fmt: skip
    assert [(s.path, s.tree) for s in load_fileset(source)] == [
        ("a.root", "Events"),
        ("b.root", "Events"),
    ]


@pytest.mark.parametrize("steps", [[[0, 50]], [[10, 90]], [[0, 40], [50, 90]]])
def test_steps_that_select_entries_are_refused(steps: list[list[int]]) -> None:
    file = {"object_path": "Events", "steps": steps, "num_entries": 90}
    with pytest.raises(BadFilesetError, match=r"'steps' of a.root select some of its entries"):
        load_fileset({"tt": {"files": {"a.root": file}}})


def test_coffeas_own_fileset_class() -> None:
    from coffea.dataset_tools.filespec import DataGroupSpec

    source = DataGroupSpec({"tt": {"files": {"a.root": "Events"}, "metadata": {"xs": 2.0}}})
    (spec,) = load_fileset(source)
    assert (spec.dataset, spec.path, spec.tree) == ("tt", "a.root", "Events")
    assert spec.metadata == {"xs": 2.0}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("TT/b.root", "TT/a.root", "DY/2018/c.root", "DY/2017/d.root", "DY/readme.txt"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "data"


def test_directories(directory: Path) -> None:
    found = load_fileset(directory, treename="Events")
    assert [(s.dataset, Path(s.path).name) for s in found] == [
        ("2017", "d.root"),
        ("2018", "c.root"),
        ("TT", "a.root"),
        ("TT", "b.root"),
    ]
    assert {s.tree for s in found} == {"Events"}


def test_globs_files_and_lists(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = f"{directory}/TT/*.root"
    files = [f"{directory}/TT/a.root", f"{directory}/TT/b.root"]
    assert [s.path for s in load_fileset(pattern)] == files
    assert load_fileset(files) == load_fileset(pattern)
    assert load_fileset([pattern, directory / "DY"]).datasets == ("TT", "2017", "2018")
    assert load_fileset(f"{pattern}:Runs")[1] == FileSpec("TT", files[1], "Runs")
    assert load_fileset(f"{files[0]}:Runs", treename="Events")[0].tree == "Runs"
    monkeypatch.chdir(directory / "TT")
    assert load_fileset("a.root")[0] == FileSpec("TT", "a.root")


def test_globs_and_directories_inside_a_mapping(directory: Path) -> None:
    source = {"all": [f"{directory}/TT/[ab].root", f"{directory}/DY"]}
    found = load_fileset(source, treename="Events")
    assert [Path(s.path).name for s in found] == ["a.root", "b.root", "d.root", "c.root"]
    assert found.datasets == ("all",)


def test_a_fileset_is_returned_as_it_is() -> None:
    fileset = Fileset([FileSpec("tt", "a.root", "Events")])
    assert load_fileset(fileset) is fileset


def test_repeated_files_are_kept_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"tt: a.root stands there more than once"):
        found = load_fileset({"tt": ["a.root", "b.root", "a.root"]}, treename="Events")
    assert len(found) == 3
    assert len(found.to_coffea()["tt"]["files"]) == 3


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({}, "there is no file in it"),
        ({"tt": []}, "there is no file in it"),
        ({"tt": {"metadata": {}}}, "tt: has no 'files'"),
        ({"tt": 7}, "tt: expected a list of files"),
        ({"tt": [7]}, "tt: expected a path, found 7"),
        ({7: ["a.root"]}, "names of datasets are text"),
        ({"tt": {"files": {"a.root": 7}}}, "the tree of a.root: expected a name, found 7"),
        ({"tt": {"files": ["a.root"], "metadata": 3}}, "metadata is not a mapping"),
        ({"tt": {"files": ["a.root"], "preload": "Jet_pt"}}, "preload is a list of columns"),
        ({"tt": ["/nowhere/at/all/*.root"]}, r"tt: no \*.root file under '/nowhere"),
        (["/nowhere/at/all/*.root"], r"no \*.root file there"),
        (["fileset.json"], "give one JSON file alone"),
        ("/nowhere/fileset.json", "can't be read"),
        (7, "expected a mapping, a path or a list of paths, found int"),
    ],
)
def test_what_is_no_fileset_is_refused(source: Any, problem: str) -> None:
    with pytest.raises(BadFilesetError, match=problem):
        load_fileset(source)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"[1]", "expected a mapping of datasets, found a list"),
        ("a.json", b"\xff\xfe{", "is not JSON"),
        ("a.json.gz", b"{}", "can't be read"),
        ("a.json.gz", gzip.compress(b"{}", mtime=0)[:-6], "can't be read"),
    ],
)
def test_bad_json_is_refused(name: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFilesetError, match=problem):
        load_fileset(tmp_path / name)


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFilesetError, match=r"no \*.root file there"):
        load_fileset(tmp_path)
