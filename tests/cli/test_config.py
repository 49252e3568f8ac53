from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
import yaml
from rich.text import Text
from typer.main import get_command

from hepcache.bench.frame import benchmarks
from hepcache.cli.app import app
from hepcache.cli.bench import benchmark_command
from hepcache.settings import DEFAULTS


@pytest.fixture
def refresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Let Dask read its configuration anew, from a directory of the test's own."""
    monkeypatch.setattr(dask.config, "PATH", str(tmp_path / "dask"))
    monkeypatch.setattr(dask.config, "paths", [str(tmp_path / "dask")])
    before = dask.config.get("hepcache")

    def read() -> None:
        ours = dask.config.merge(DEFAULTS, dask.config.collect(paths=dask.config.paths))
        dask.config.config["hepcache"] = ours["hepcache"]

    yield read
    dask.config.config["hepcache"] = before


def test_what_init_writes_is_in_force(
    tmp_path: Path, hepcache: Any, refresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = hepcache("init", "--directory", tmp_path / "ssd")
    path = tmp_path / "dask/hepcache.yaml"
    assert (code, err) == (0, "")
    assert str(path) in out
    monkeypatch.setenv("DASK_HEPCACHE__CACHE__CODEC", "lz4")
    refresh()
    code, out, err = hepcache("config", "show", "--json")
    assert (code, err) == (0, "")
    found = {one["key"]: one for one in json.loads(out)["settings"]}
    assert found["cache.directory"]["value"] == str(tmp_path / "ssd")
    assert found["cache.directory"]["source"] == str(path)
    assert found["cache.codec"]["source"] == "$DASK_HEPCACHE__CACHE__CODEC"
    assert found["segment.entries"]["source"] == "default"
    code, out, _ = hepcache("config", "show", "--changed")
    assert "cache.codec" in out
    assert "segment.entries" not in out
    monkeypatch.delenv("DASK_HEPCACHE__CACHE__CODEC")
    path.unlink()
    refresh()
    assert "All settings are as by default." in hepcache("config", "show", "--changed")[1]


def test_init_replaces_a_file_only_when_told_to(tmp_path: Path, hepcache: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("hepcache: {host: me}\n")
    code, _, err = hepcache("init", "--out", path)
    assert code == 2
    assert "--overwrite" in err
    assert yaml.safe_load(path.read_text()) == {"hepcache": {"host": "me"}}
    assert hepcache("init", "--out", path, "--directory", tmp_path, "--overwrite")[0] == 0
    assert yaml.safe_load(path.read_text())["hepcache"]["cache"]["directory"] == str(tmp_path)


def test_init_looks_at_this_machine(tmp_path: Path, hepcache: Any) -> None:
    code, out, err = hepcache("init", "--out", "-")
    assert (code, err) == (0, "")
    assert "\n# Volumes:\n" in out
    told = yaml.safe_load(out)["hepcache"]["cache"]
    assert told.keys() == {"directory", "capacity"}
    found = json.loads(hepcache("init", "--out", "-", "--json")[1])
    assert found["settings"]["cache.directory"] == told["directory"]
    assert not any(one["problem"] for one in found["volumes"][:1])


def test_a_mistake_in_the_configuration_ends_in_2(
    hepcache: Any, refresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_HEPCACHE__CACHE__CAPCITY", "1 GB")
    refresh()
    code, _, err = hepcache("config", "show")
    assert code == 2
    assert "did you mean hepcache.cache.capacity" in err


MISTAKES = {
    ("DASK_HEPCACHE__CACHE__CAPCITY", "1 GB"): ("hepcache.cache.capcity", "mean hepcache.cache.c"),
    ("DASK_HEPCACHE_CACHE__CODEC", "raw"): ("hepcache_cache.codec", "hepcache.cache.codec"),
    ("DASK_HEPCACHE__CACHE", "5"): ("hepcache.cache:", "settings below it"),
    ("DASK_HEPCACHE__ORIGIN__RETRIES", "6"): ("hepcache.origin.retries", "this setting is gone"),
    ("DASK_HEPCACHE__ORIGIN__AHEAD", "-1"): ("hepcache.origin.ahead", "at least 0"),
    ("DASK_HEPCACHE__SEGMENT__ENTRIES", "-5"): ("hepcache.segment.entries", "from 1"),
}  # fmt: skip
COMMANDS = (
    "run counting.py:count data", "demo --out here", "doctor", "bench cycles --quick",
    "catalogue show", "catalogue add data", "cache info", "cache ls", "cache verify",
    "cache clear --yes", "cache evict --older-than 1d", "cache warm data --columns nJet",
    "cluster script",
)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        *((command, variable) for command in COMMANDS for variable in list(MISTAKES)[::3]),
        *(("bench cycles --quick", variable) for variable in MISTAKES),
    ],
)
def test_every_command_refuses_a_bad_setting(
    tmp_path: Path,
    hepcache: Any,
    refresh: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    variable: tuple[str, str],
) -> None:
    """Key, value, source and what is allowed; and nothing is begun."""
    (tmp_path / "counting.py").write_text("def count(events): return {'n': len(events)}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.root").write_bytes(b"root")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(*variable)
    # Python may keep the processor's bytecode beside it.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    refresh()
    before = sorted(map(str, tmp_path.glob("[!d]*")))
    code, out, err = hepcache(*command.split())
    name, value = variable
    assert (code, out) == (2, "")
    for expected in (*MISTAKES[variable], value, f"(${name})"):
        assert expected in err
    assert err.count("\n") == 1
    assert sorted(map(str, tmp_path.glob("[!d]*"))) == before


def test_a_bad_setting_in_a_file_is_told_with_the_file(
    tmp_path: Path, hepcache: Any, refresh: Callable[[], None]
) -> None:
    path = tmp_path / "dask/hepcache.yaml"
    path.parent.mkdir()
    path.write_text("hepcache: {segment: {entries: -1}}")
    refresh()
    code, out, err = hepcache("cache", "info")
    assert (code, out) == (2, "")
    assert err == (
        f"hepcache: hepcache.segment.entries: expected a whole number from 1, found -1 ({path})\n"
    )


def leaves(command: Any, name: str = "hepcache") -> list[Any]:
    below = getattr(command, "commands", None)
    if below is None:
        return [pytest.param(command, id=name)]
    return [one for own, part in below.items() for one in leaves(part, f"{name} {own}")]


@pytest.mark.parametrize("command", leaves(get_command(app)))
def test_every_command_can_speak_json(command: Any) -> None:
    if not command.params:  # stands for a benchmark until that is called
        pytest.skip("made when it is called; tests/bench/test_frame.py looks at its frame")
    assert "--json" in {option for one in command.params for option in one.opts}


@pytest.mark.slow  # all benchmarks are imported
def test_help_is_shown_as_it_was_written() -> None:
    """What stands in brackets is a mark of style to rich, and would be left out."""
    for leaf in leaves(get_command(app)):
        (command,) = leaf.values
        benchmark = benchmarks().get(leaf.id.removeprefix("hepcache bench "))
        command = benchmark_command(command.name) if benchmark else command
        for one in command.params:
            assert one.help, (leaf.id, one.name)
            assert Text.from_markup(one.help).plain == one.help, (leaf.id, one.name)


def test_what_is_written_is_told_as_json(tmp_path: Path, hepcache: Any) -> None:
    made = ["hdf5", "sample", tmp_path, "--shape", "small-files", "--jobs", "1", "--json"]
    code, out, err = hepcache(*made)
    assert (code, err) == (0, "")
    files = json.loads(out)["files"]
    assert [one["bytes"] for one in files] == [Path(one["path"]).stat().st_size for one in files]
    names = [one["path"] for one in files]
    joined = ["-o", tmp_path / "all.h5", "--jobs", "1", "--json", "--verify"]
    code, out, _ = hepcache("hdf5", "concat", *names, *joined)
    told = json.loads(out)
    assert (code, told["problems"]) == (0, {})
    assert told["files"][0]["files"] == len(files)
    assert told["files"][0]["path"] == str(tmp_path / "all.h5")


def test_interrupted_has_an_exit_code_of_its_own(
    hepcache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hepcache.settings.configured", stopped)
    assert hepcache("config", "show")[0] == 130


def test_in_a_pipe_there_are_no_colours_and_its_end_is_no_error() -> None:
    """A shell's pipe: what reads it takes one line and goes."""
    command = f"{sys.executable} -m hepcache config show; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -n 1"],
        capture_output=True, text=True, check=True, env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    assert done.stderr in ("0\n", "1\n")


def test_completion_knows_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hepcache"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "_HEPCACHE_COMPLETE": "complete_bash", "COMP_WORDS": "hepcache c",
             "COMP_CWORD": "1"},
    )  # fmt: skip
    assert set(done.stdout.split()) == {"cache", "catalogue", "cluster", "config"}
