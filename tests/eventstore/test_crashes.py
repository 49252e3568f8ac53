"""kill -9 while batching: what was acknowledged is there, and no half of a batch."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hepcache.eventstore import SubRun, connect

WRITER = Path(__file__).with_name("crash.py")


def kill_while_writing(
    writers: subprocess.Popen[str], url: str, first: int, lines: int, wait_s: float
) -> int:
    """Return the last batch that a writer acknowledged before it was killed."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(f"{url} {first}\n")
    writers.stdin.flush()
    pid, said = 0, [str(first - 1)]
    while not pid or len(said) <= lines:
        line = writers.stdout.readline().strip()
        assert line != "dead"
        if line.startswith("pid"):
            pid = int(line.split()[1])
        else:
            said.append(line)
    # Not for synchronisation: it hits another moment of a batch each time.
    time.sleep(wait_s)
    os.kill(pid, signal.SIGKILL)
    said += iter(lambda: writers.stdout.readline().strip(), "dead")  # type: ignore[union-attr]
    return int(said[-1])


def check(subrun: SubRun, acknowledged: int) -> int:
    """Check everything; return the first batch that isn't there."""
    events = subrun.numbers().tolist()
    assert len(events) % 8 == 0
    assert events == list(range(len(events)))
    assert len(events) // 8 > acknowledged
    for label in ("x", "y", "z"):
        table = subrun.read(label)
        assert table.events.tolist() == events
        assert (table.columns[""].reshape(-1, 300) == table.events[:, None]).all()
    return len(events) // 8


def kill_many_times(directory: Path, times: int) -> None:
    url = (directory / "store").as_uri()
    moment = random.Random(1)
    following = 0
    with subprocess.Popen(
        [sys.executable, str(WRITER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writers:
        for _ in range(times):
            lines, wait_s = moment.randrange(1, 4), moment.random() * 0.02
            last = kill_while_writing(writers, url, following, lines, wait_s)
            with connect(url) as store:
                following = check(store["d"][1][1], last)


def test_kill_while_batching(tmp_path: Path) -> None:
    kill_many_times(tmp_path, 3)
