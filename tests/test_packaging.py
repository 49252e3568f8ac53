from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import hepcache

ROOT = Path(__file__).parents[1]


def test_conda_environment_has_the_same_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    extras = project["optional-dependencies"]
    rooms = (extras[name] for name in ("hdf5", "htcondor", "objects", "remote"))
    expected = {*project["dependencies"], *(one for room in rooms for one in room)}
    # conda-forge's lmdb is the C library alone.
    there = {one.replace("python-lmdb", "lmdb") for one in conda if isinstance(one, str)}
    assert there == {*expected, "python>=3.11", "pip"}


def test_every_public_name_is_there() -> None:
    assert hepcache.__all__ == sorted(hepcache.__all__)
    for name in hepcache.__all__:
        assert getattr(hepcache, name) is not None


def test_importing_hepcache_imports_nothing_heavy() -> None:
    code = (
        "import sys, hepcache, hepcache.cli;"
        "print([m for m in ('coffea', 'dask', 'uproot') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_the_lock_names_no_host() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    importlib.import_module("hepcache.settings")
