"""What a terminal shows while ``hepcache run`` works, and what its workers import."""

from __future__ import annotations

import os
import pty
import re
import sys
from pathlib import Path

import psutil
import pytest
import uproot
from coffea.util import load
from tests.formats.conftest import write_mixed_tree

ANALYSIS = """
import atexit
import sys
from pathlib import Path


def note():
    if "hepcache.cli.app" in sys.modules:
        slow = {"bokeh", "pandas"} & sys.modules.keys()
        Path("slow").write_text(" ".join(sorted(slow)))


atexit.register(note)


def look(events):
    return {"command": int("hepcache.cli.app" in sys.modules)}
"""


def shown(command: list[str], directory: Path, *, exit_code: int = 0) -> tuple[str, float]:
    """Run a command in a terminal; return what it showed, and its CPU seconds until the first."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.environ.update(TERM="xterm-256color", COLUMNS="120", OMP_NUM_THREADS="1")
        os.execv(command[0], command)
    parts, cpu_s = [], None
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            break
        if cpu_s is None:
            times = psutil.Process(pid).cpu_times()
            cpu_s = times.user + times.system
        parts.append(part)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", b"".join(parts)).decode()
    assert os.waitstatus_to_exitcode(status) == exit_code, text
    assert cpu_s is not None
    return text, cpu_s


@pytest.mark.slow
def test_a_run_says_from_the_first_second_on_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text(ANALYSIS)
    write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    script = str(Path(sys.executable).with_name("hepcache"))
    command = [script, "run", "analysis.py:look", "a.root", "--schema", "BaseSchema"]
    text, cpu_s = shown([*command, "--out", "out"], tmp_path)
    # Seconds of a processor, because other tests use it, too.
    assert cpu_s < 1.5
    phases = [
        "Checking the arguments",
        "Loading coffea and Dask",
        "Loading analysis.py:look",
        "Looking for the files",
        "Starting 2 workers",
        "Processing",
        "Drawing the report",
        "Total",
    ]
    places = [text.find(phase) for phase in phases]
    assert -1 not in places, text
    assert places == sorted(places)
    assert re.search(r"Total \S+ s: started in \S+ s, 1 cycle \S+ m?s, report \S+ m?s\.", text)
    # Workers know nothing of the command line: it would only keep them from starting.
    assert load(tmp_path / "out" / "out.coffea") == {"command": 0}
    # Nor does the command need what Dask would import for pages and for other people's data.
    assert (tmp_path / "slow").read_text() == ""


WRONG = """
from coffea.processor import ProcessorABC


class Masses(ProcessorABC):
    def process(self, events):
        return {"sum": float(events.weigth.to_numpy().sum())}

    def postprocess(self, accumulator):
        return accumulator
"""


@pytest.mark.slow
def test_a_terminal_shows_where_a_processor_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text(WRONG)
    write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    script = str(Path(sys.executable).with_name("hepcache"))
    command = [script, "run", "analysis.py", "a.root", "--schema", "BaseSchema"]
    text, _ = shown([*command, "--dashboard", "0"], tmp_path, exit_code=1)
    assert re.search(r"Dashboard: http://127\.0\.0\.1:[1-9]\d*/hepcache", text)
    message = text[text.index("hepcache: ") :]
    assert (
        "analysis.py:7 in process: events have no field 'weigth'; did you mean weight?" in message
    )
    assert "file a.root, tree Events, entries 0 to 1,000" in message
    assert "Traceback" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "first", "exit_code"),
    [
        (["sample", "nanoaod", "data", "--events", "10"], "Loading awkward", 0),
        (["report", "html", "nowhere"], "Drawing the page", 1),
        (["catalogue", "show"], "Opening the catalogue", 0),
        (["cache", "info"], "Looking for caches", 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_command_says_within_a_second_what_it_does(
    command: list[str], first: str, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script = str(Path(sys.executable).with_name("hepcache"))
    text, cpu_s = shown([script, *command], tmp_path, exit_code=exit_code)
    assert text.find(first) in range(5), text
    assert cpu_s < 1.5
