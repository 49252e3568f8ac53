"""What a run remembers for the next one never costs its result."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.config
import pytest
from coffea.nanoevents import BaseSchema

import hepcache
from hepcache import compat
from hepcache.process import runner

HOLD = """
import fcntl, sqlite3, sys
path, how = sys.argv[1:]
connection = sqlite3.connect(path, isolation_level=None)
if how == "flock":
    lock = open(path + ".lock", "r+b")
    fcntl.flock(lock, fcntl.LOCK_EX)
else:
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def count(events: Any) -> dict[str, int]:
    return {"events": len(events)}


@pytest.fixture
def files(shared_data: Path) -> dict[str, Any]:
    return {"dy": {"files": {str(shared_data / "nanoaod" / "nano_dy.root"): "Events"}}}


@pytest.fixture
def catalogue() -> Path:
    return Path(dask.config.get("hepcache.catalogue"))


@pytest.fixture
def run() -> hepcache.Runner:
    return hepcache.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for locks for less long, so that the tests don't."""
    monkeypatch.setattr(runner, "_PATIENCE_S", 0.2)


@contextmanager
def held(catalogue: Path, how: str = "exclusively") -> Iterator[None]:
    """Let another process hold the catalogue for as long as it is asked to."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(catalogue), how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["exclusively", "flock"])
def test_a_locked_catalogue_is_done_without(
    how: str, files: dict[str, Any], catalogue: Path, run: hepcache.Runner
) -> None:
    assert run(files, count) == {"events": 40}
    began = time.monotonic()
    with held(catalogue, how), pytest.warns(UserWarning, match="does without") as warned:
        assert run(files, count) == {"events": 40}
    assert time.monotonic() - began < 5
    assert len(warned) == 1  # told once, and waited for once
    assert run.run_record is not None
    assert len(run.run_record.chunks) == 1


HOLDERS = ExitStack()


def hold_and_count(events: Any) -> dict[str, int]:
    HOLDERS.enter_context(held(Path(dask.config.get("hepcache.catalogue"))))
    return count(events)


@pytest.mark.usefixtures("impatient")
def test_a_catalogue_that_is_locked_meanwhile_costs_a_warning(
    files: dict[str, Any], run: hepcache.Runner
) -> None:
    with HOLDERS, pytest.warns(UserWarning, match="the run is done, but its durations .*locked"):
        assert run(files, hold_and_count) == {"events": 40}


@pytest.mark.parametrize("damage", ["first page", "cut", "text"])
def test_a_catalogue_that_is_damaged_meanwhile_costs_a_warning(
    damage: str, files: dict[str, Any], catalogue: Path, compare: Callable[..., Any]
) -> None:
    def processor(events: Any) -> dict[str, int]:
        if catalogue.exists():
            data = catalogue.read_bytes()
            changed = {
                "first page": bytes(4096) + data[4096:],
                "cut": data[:5000],
                "text": b"Dear diary\n" * 1000,
            }
            catalogue.write_bytes(changed[damage])
        return count(events)

    def script(module: ModuleType, executor: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "catalogue .* was damaged", UserWarning)
            return module.Runner(executor, schema=BaseSchema)(files, processor)

    compare(script, ("iterative",))
    assert len(list(catalogue.parent.glob("*.damaged-*"))) == 2


@pytest.mark.parametrize("content", [b"Dear diary\n", bytes(4096)])
def test_a_file_that_was_never_a_catalogue_is_left_alone(
    content: bytes, files: dict[str, Any], catalogue: Path, run: hepcache.Runner
) -> None:
    catalogue.write_bytes(content)
    with pytest.warns(UserWarning, match="the run does without its catalogue: .*name another"):
        assert run(files, count) == {"events": 40}
    assert catalogue.read_bytes() == content


def test_a_place_where_none_can_be_is_done_without(
    files: dict[str, Any], run: hepcache.Runner, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").touch()
    place = str(tmp_path / "notes.txt" / "catalogue.sqlite")
    with (
        dask.config.set({"hepcache.catalogue": place}),
        pytest.warns(UserWarning, match="the run does without its catalogue: .*directory"),
    ):
        assert run(files, count) == {"events": 40}


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    where = tmp_path / "volume"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(volume: Path) -> None:
    with (volume / "all the rest").open("ab", buffering=0) as file:
        for length in (4096, 1):
            try:
                while True:
                    file.write(b"x" * length)
            except OSError:
                continue


@pytest.mark.parametrize("when", ["before", "after a run", "within a run"])
def test_a_full_volume_costs_a_warning(
    when: str, files: dict[str, Any], run: hepcache.Runner, volume: Path
) -> None:
    def processor(events: Any) -> dict[str, int]:
        if when == "within a run":
            fill(volume)
        return count(events)

    with dask.config.set({"hepcache.catalogue": str(volume / "catalogue.sqlite")}):
        if when == "after a run":
            assert run(files, processor) == {"events": 40}
        if when != "within a run":
            fill(volume)
        with pytest.warns(UserWarning, match="the run (is done|does without)"):
            assert run(files, processor) == {"events": 40}
        (volume / "all the rest").unlink()
        for _ in range(2):
            assert hepcache.Runner(run.executor, schema=BaseSchema)(files, count)["events"] == 40
