"""Which module describes and reads which kind of path."""

from __future__ import annotations

from inspect import signature

import pytest

from hepcache.errors import BadFileError
from hepcache.formats import registry


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/data/a.root", "root"),
        ("root://server//a.h5.root", "root"),
        ("https://server/a", "root"),
        ("s3://bucket/file.root", "root"),
        ("/data/a.h5", "hdf5"),
        ("a.HDF5", "hdf5"),
        ("ntpl+s3+HTTPS://host/bucket/path", "rntuple"),
        ("rados://hep/zee", "rntuple"),
        ("events+file:///ssd/nova#nova/prod5", "events"),
    ],
)
def test_a_path_says_of_which_kind_it_is(path: str, module: str) -> None:
    assert registry._module_for(path).__name__ == f"hepcache.formats.{module}"


@pytest.mark.parametrize("path", ["a.root", "a.h5", "rados://hep/zee", "events+mem://x#y"])
def test_each_kind_has_all_that_is_asked_of_it(path: str) -> None:
    module = registry._module_for(path)
    wanted = {"open_source": 1}
    if registry._kind_of(path) not in registry._STORES:
        wanted["describe"] = 4
    else:
        wanted |= {"freshness_of": 2, "examine": 3}
    for name, parameters in wanted.items():
        assert len(signature(getattr(module, name)).parameters) == parameters


def test_tables_behind_a_url_are_refused_with_advice() -> None:
    with pytest.raises(BadFileError, match="mount it, or copy the file"):
        registry.probe("https://server/a.h5")
