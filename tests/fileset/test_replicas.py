"""Other places of a file, as filesets name them and as a setting makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.config
import pytest

from hepcache.errors import BadFilesetError
from hepcache.fileset import FileSpec, load_fileset
from hepcache.fileset.load import without_replicas
from hepcache.fileset.replicas import places_of


def entry(replicas: Any, path: str = "/a.root") -> dict[str, Any]:
    return {"tt": {"files": {path: {"object_path": "Events", "replicas": replicas}}}}


def test_a_fileset_names_replicas(tmp_path: Path) -> None:
    source = entry(["root://one//a.root", "https://two/a.root", "root://one//a.root"])
    (spec,) = load_fileset(source)
    assert spec.replicas == ("root://one//a.root", "https://two/a.root")
    assert places_of(spec) == ("/a.root", *spec.replicas)
    path = tmp_path / "files.json"
    path.write_text(json.dumps(source))
    assert load_fileset(path) == load_fileset(source)
    plain = {"tt": {"files": {"/a.root": "Events"}}}
    for given in (source, str(path), path):
        assert without_replicas(given) == (plain, {"/a.root": spec.replicas})
    assert without_replicas(plain) == (plain, {})
    assert load_fileset(source).to_coffea() == {"tt": {"files": ["/a.root"], "treename": "Events"}}


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ("root://one//a.root", "expected a list of paths and URLs"),
        ({"root://one//a.root": "Events"}, "expected a list of paths and URLs"),
        ([7], "expected a path, found 7"),
        ([""], "it is empty"),
        (["/b.root:Events"], "names a tree; object_path does that for all"),
        (["/b.h5"], "only ROOT files can have replicas"),
        (["rados://pool/a"], "only ROOT files can have replicas"),
    ],
)
def test_replicas_that_make_no_sense_are_refused(replicas: Any, problem: str) -> None:
    with pytest.raises(BadFilesetError, match=r"fileset tt: .*'/a\.root'") as caught:
        load_fileset(entry(replicas))
    assert problem in str(caught.value)
    with pytest.raises(BadFilesetError, match="fileset tt: "):
        without_replicas(entry(replicas))


def test_a_directory_has_no_replicas(tmp_path: Path) -> None:
    (tmp_path / "a.root").touch()
    with pytest.raises(BadFilesetError, match="name each file"):
        load_fileset(entry(["root://one//a.root"], str(tmp_path)))


def test_the_setting_maps_the_longest_prefix() -> None:
    mapped = {
        "/store/": ["root://xcache//store/", "root://global//store/"],
        "/store/user/": ["/home/user/", "/store/user/"],
    }
    with dask.config.set({"hepcache.origin.replicas": mapped}):
        assert places_of(FileSpec("tt", "/store/mc/a.root")) == (
            "root://xcache//store/mc/a.root",
            "root://global//store/mc/a.root",
        )
        assert places_of(FileSpec("tt", "/store/user/a.root")) == (
            "/home/user/a.root",
            "/store/user/a.root",
        )
        assert places_of(FileSpec("tt", "/data/a.root")) == ()
        assert places_of(FileSpec("tt", "/data/a.root", replicas=("/store/a.root",))) == (
            "/data/a.root",
            "root://xcache//store/a.root",
            "root://global//store/a.root",
        )
        assert places_of(FileSpec("tt", "rados://store/a")) == ()
    assert places_of(FileSpec("tt", "/store/mc/a.root")) == ()
