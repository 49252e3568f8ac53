from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import hepcache

ROOT = Path(__file__).parents[1]


def test_conda_environment_has_the_same_dependencies(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    extras = project["optional-dependencies"]
    rooms = (extras[name] for name in ("dashboard", "hdf5", "htcondor", "objects", "remote"))
    expected = {*project["dependencies"], *(one for room in rooms for one in room)}
    # conda-forge's isal, lmdb and zlib-ng are the C libraries alone; pip has what it doesn't.
    bindings = re.compile(r"python-(?=isal|lmdb|zlib-ng)")
    there = {bindings.sub("", one) for one in conda if isinstance(one, str)}
    (pip,) = (one["pip"] for one in conda if isinstance(one, dict))
    assert pip[-1] == "--editable ."
    assert there | set(pip[:-1]) == {*expected, "python>=3.11", "pip"}
    (tmp_path / "lines.txt").write_text("\n".join(pip))
    command = [sys.executable, "-c", _LINES, str(tmp_path / "lines.txt")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert len(found.splitlines()) == len(pip)


# Conda hands the lines to pip in a file, in which pip takes fewer options.
_LINES = """
import sys
from pip._internal.network.session import PipSession
from pip._internal.req.req_file import parse_requirements
for one in parse_requirements(sys.argv[1], session=PipSession()):
    print(one.requirement)
"""


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


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    rooms = ("dashboard", "examples", "hdf5", "htcondor", "objects", "remote")
    asked = [*project["dependencies"], *(text for room in rooms for text in extras[room])]
    oldest = dict(
        line.split("==") for line in (ROOT / "requirements.oldest").read_text().splitlines()
    )
    for requirement in map(Requirement, asked):
        (bound,) = (part for part in requirement.specifier if part.operator == ">=")
        assert Version(oldest[requirement.name]) == Version(bound.version), requirement.name


FACILITY = "deploy/ansible/roles/environment/files/requirements.txt"


def test_a_facility_gets_what_the_lock_has_and_no_tools() -> None:
    """Run ``make lock`` where this fails."""

    def pinned(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text().splitlines()
        return dict(line.partition(" ")[0].split("==") for line in lines)

    locked, facility = pinned("requirements.lock"), pinned(FACILITY)
    assert {name: locked.get(name, version) for name, version in facility.items()} == facility
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {Requirement(text).name for text in asked} <= facility.keys()
    assert not facility.keys() & {"pytest", "ruff", "mypy", "sphinx", "hypothesis"}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements.oldest", FACILITY])
def test_the_lock_names_no_host(name: str) -> None:
    assert "://" not in (ROOT / name).read_text()
    importlib.import_module("hepcache.settings")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """Return wheel and sdist, twice: the second time from files with other times."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no clone, so what belongs to it is not known")
    found = []
    for number in range(2):
        source = tmp_path_factory.mktemp("source")
        for name in filter(None, listed.stdout.split("\0")):
            if not (ROOT / name).is_file() or name.startswith(("docs/notebooks", "bench")):
                continue
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
            os.utime(source / name, (number, 10**9 + number))
        out = source / "dist"
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    return found


def test_wheel_and_sdist_are_reproducible(built: list[dict[str, bytes]]) -> None:
    first, second = built
    assert len(first) == 2
    assert first == second


def test_the_wheel_has_types_data_and_nothing_else(built: list[dict[str, bytes]]) -> None:
    (wheel,) = (data for name, data in built[0].items() if name.endswith(".whl"))
    names = set(zipfile.ZipFile(io.BytesIO(wheel)).namelist())
    for name in ("py.typed", "hepcache.yaml", "report/render/templates/page.html.j2"):
        assert f"hepcache/{name}" in names
    roots = {name.split("/")[0] for name in names}
    assert roots == {"hepcache", f"hepcache-{hepcache.__version__}.dist-info"}
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert source <= names


def test_the_sdist_has_what_a_packager_needs(built: list[dict[str, bytes]]) -> None:
    (sdist,) = (data for name, data in built[0].items() if name.endswith(".tar.gz"))
    with tarfile.open(fileobj=io.BytesIO(sdist)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "tests/test_packaging.py"} <= names
    assert {"LICENSE", "CITATION.cff", "CONTRIBUTING.md"} <= names


def test_the_licence_comes_with_the_wheel(built: list[dict[str, bytes]]) -> None:
    (wheel,) = (data for name, data in built[0].items() if name.endswith(".whl"))
    archive = zipfile.ZipFile(io.BytesIO(wheel))
    (name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
    assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_what_is_cited_is_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == hepcache.__version__ == project["version"]
    assert cited["license"] == project["license"]


def test_the_extra_all_has_every_extra_that_users_want() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("hepcache[").removesuffix("]").split(",")
    assert named == sorted(extras.keys() - {"all", "dev", "docs"})


def test_an_import_warns_of_dask_and_distributed_of_different_versions(tmp_path: Path) -> None:
    def imported(dask: str) -> str:
        metadata = tmp_path / f"dask-{dask}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: dask\nVersion: {dask}\n")
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-c", "import hepcache"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        metadata.unlink()
        return done.stderr

    assert "dask 2025.3.1 and distributed" in imported("2025.3.1")
    assert imported(version("distributed")) == ""


@pytest.mark.parametrize(
    ("missing", "module", "extra"),
    [
        ("h5py", "hepcache.hdf5", "hdf5"),
        ("dask_jobqueue", "hepcache.clusters.htcondor", "htcondor"),
        ("cryptography", "hepcache.clusters.htcondor", "htcondor"),
    ],
)
def test_an_optional_part_names_its_extra(missing: str, module: str, extra: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"pip install 'hepcache[{extra}]'" in done.stderr


def test_every_extra_is_in_the_dev_environment_so_that_all_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    there = {one.split(">")[0] for one in [*project["dependencies"], *extras["dev"]]}
    # coffea brings the remote ones; JupyterLab only opens what nbclient executes.
    for name in ("hdf5", "htcondor", "workflow"):
        assert {one.split(">")[0] for one in extras[name]} <= there, name
