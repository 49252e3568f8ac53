"""hepcache from its wheel, in an environment that has nothing but its declared dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OPTIONAL = {
    "import hepcache.hdf5": "hepcache[hdf5]",
    "from hepcache import HTCondorCluster": "hepcache[htcondor]",
}


def run(*command: str | Path, cwd: Path, fails: bool = False) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment with the wheel, at the versions of the lock."""
    directory = tmp_path_factory.mktemp("clean")
    source = directory / "source"
    listed = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=source)
    (wheel,) = directory.glob("hepcache-*.whl")
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, directory / "venv", cwd=directory)
    python = directory / "venv/bin/python"
    lock = ROOT / "requirements.lock"
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", lock, wheel,
        cwd=directory)  # fmt: skip
    return python


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
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--python", clean, benchmarks, cwd=tmp_path)
    assert "simulation" in run(command, "bench", "list", cwd=tmp_path)


@pytest.mark.timeout(600)
def test_the_demo_runs(clean: Path, tmp_path: Path) -> None:
    run(clean.with_name("hepcache"), "demo", "--events", "2000", "--cycles", "2", cwd=tmp_path)
    assert (tmp_path / "hepcache-demo/report.html").stat().st_size > 10_000
