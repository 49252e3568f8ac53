"""hepcache from its wheel, in an environment that has nothing but its declared dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
OPTIONAL = {
    "import hepcache.hdf5": "hepcache[hdf5]",
    "from hepcache import HTCondorCluster": "hepcache[htcondor]",
}

ADDED_UP = """
import awkward as ak, dask, numpy as np, uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from hepcache import Runner

dask.config.set({"hepcache.catalogue": "catalogue", "hepcache.cache.directory": "columns"})
with uproot.recreate("x.root") as file:
    file.mktree("Events", {"x": np.arange(100)})
runner = Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=30)
cycles = [runner({"a": ["x.root"]}, lambda events: {"x": int(ak.sum(events.x))}, treename="Events")
          for _ in range(2)]
print([cycle["x"] for cycle in cycles])
"""


def run(*command: str | Path, cwd: Path, fails: bool = False) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that is made of what git lists."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    listed = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=source)
    (wheel,) = directory.glob("hepcache-*.whl")
    return wheel


def environment(directory: Path, versions: str, *packages: str | Path) -> Path:
    """Return the Python of a new environment with packages, in versions that a file lists."""
    python = directory / "venv/bin/python"
    constraints = ROOT / f"requirements.{versions}"
    run(UV, "venv", "--quiet", "--seed", "--python", sys.executable, python.parents[1],
        cwd=directory)  # fmt: skip
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", constraints,
        *packages, cwd=directory)  # fmt: skip
    return python


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return the Python of a new environment with the wheel, at the versions of the lock."""
    return environment(tmp_path_factory.mktemp("clean"), "lock", wheel)


@pytest.mark.timeout(900)
def test_every_public_name_but_those_of_extras_is_there(clean: Path, tmp_path: Path) -> None:
    code = (
        "import hepcache\n"
        "for name in hepcache.__all__:\n"
        "    if name != 'HTCondorCluster':\n"
        "        assert getattr(hepcache, name) is not None\n"
        "print(hepcache.__file__)"
    )
    assert str(clean.parents[1]) in run(clean, "-c", code, cwd=tmp_path)
    run(clean, "-c", "import h5py", cwd=tmp_path, fails=True)


@pytest.mark.parametrize("code", OPTIONAL)
def test_what_is_missing_names_the_extra(clean: Path, tmp_path: Path, code: str) -> None:
    said = run(clean, "-c", code, cwd=tmp_path, fails=True)
    assert "ImportError: " in said
    assert f"pip install '{OPTIONAL[code]}'" in said


def test_a_command_of_an_extra_ends_in_one_line(clean: Path, tmp_path: Path) -> None:
    command = clean.with_name("hepcache")
    said = run(command, "hdf5", "info", "a.h5", cwd=tmp_path, fails=True)
    assert "pip install 'hepcache[hdf5]'" in said
    assert "Traceback" not in said


def test_the_published_benchmark_ships_and_the_others_say_how_to_get_them(
    clean: Path, tmp_path: Path
) -> None:
    command = clean.with_name("hepcache")
    for arguments in (["bench"], ["bench", "list"]):
        said = run(command, *arguments, cwd=tmp_path, fails=arguments == ["bench"])
        assert "cycles" in said
        assert "simulation" not in said
        assert "pip install ./benchmarks" in said
    said = run(command, "bench", "hot", cwd=tmp_path, fails=True)
    assert "pip install ./benchmarks" in said
    benchmarks = ROOT / "benchmarks"
    run(UV, "pip", "install", "--quiet", "--python", clean, benchmarks, cwd=tmp_path)
    assert "simulation" in run(command, "bench", "list", cwd=tmp_path)


@pytest.mark.timeout(600)
def test_the_demo_runs(clean: Path, tmp_path: Path) -> None:
    run(clean.with_name("hepcache"), "demo", "--events", "2000", "--cycles", "2", cwd=tmp_path)
    assert (tmp_path / "hepcache-demo/report.html").stat().st_size > 10_000


@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the oldest versions are for 3.11")
def test_it_changes_nothing_where_the_oldest_coffea_is(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path, "oldest", "coffea", "distributed")

    def installed() -> set[str]:
        return set(run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).split())

    before = installed()
    names = {line.partition("==")[0] for line in before}
    assert names >= {"awkward", "coffea", "dask", "distributed", "numba", "numpy", "uproot"}
    assert "hepcache" not in names
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert before <= installed()
    run(python, "-m", "pip", "check", cwd=tmp_path)
    (tmp_path / "added_up.py").write_text(ADDED_UP)
    assert run(python, "added_up.py", cwd=tmp_path).endswith("[4950, 4950]\n")
