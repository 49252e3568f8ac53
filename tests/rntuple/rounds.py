"""Rounds of two puts at once, some of them killed: whatever happens, one whole ntuple is there."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import awkward as ak
import numpy as np
import uproot

from hepcache.objectstore import Store, open_store
from hepcache.rntuple import NTuple, remove, verify

SCRIPT = Path(__file__).with_name("putting.py")


def write_numbers(directory: Path, count: int = 2) -> list[Path]:
    """Write files of one schema, each with its own number in all of its entries."""
    paths = []
    for number in range(count):
        path = directory / f"numbers{number}.root"
        with uproot.recreate(path, compression=None) as file:
            ntuple = file.mkrntuple("Events", {"x": np.dtype("i8"), "y": np.dtype("f8")})
            for _ in range(6):
                ntuple.extend({"x": np.full(5000, number), "y": np.full(5000, number / 2)})
        paths.append(path)
    return paths


@contextmanager
def putting() -> Iterator[subprocess.Popen[str]]:
    """Start the process that forks puts."""
    command = [sys.executable, "-W", "error", SCRIPT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate()


def numbers_in(store: Store) -> set[int]:
    """Return the numbers of the files whose entries an ntuple has."""
    with NTuple(store) as ntuple:
        array = ntuple.arrays()
        assert len(array) == 30_000
        assert ak.all(array["y"] == array["x"] / 2)
        return set(np.unique(array["x"].to_numpy()).tolist())


def play(uri: str, files: Sequence[Path], rounds: int, seconds: float) -> Counter[str]:
    """Put two files at once, so many times; return how often each outcome came.

    In two of three rounds a put is killed, at any moment of about ``seconds``.
    """
    draw = np.random.default_rng(rounds)
    outcomes: Counter[str] = Counter()
    here: set[int] = set()
    with putting() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for turn in range(rounds):
            delays = [0.0, 0.0]
            if turn % 3:
                delays[turn % 2] = float(draw.uniform(0.001, seconds))
            process.stdin.write(f"{uri} {files[0]} {delays[0]} {files[1]} {delays[1]}\n")
            process.stdin.flush()
            ended = process.stdout.readline().split()
            outcomes.update(ended)
            assert "failed" not in ended, (turn, ended)
            store = open_store(uri)
            verdict = verify(store)
            assert verdict.problems == {} or not here, (turn, ended, verdict)
            possible = {number for number in range(2) if ended[number] != "lost"}
            won = {number for number in range(2) if ended[number] == "won"}
            if here or won:
                found = numbers_in(open_store(uri))  # closed behind it
                assert len(found) == 1, (turn, ended, found)
                assert found <= possible | here, (turn, ended, found)
                assert not won or found <= won | {n for n in possible if ended[n] == "killed"}
                here = found
            if "killed" not in ended and "lost" in ended:
                # What is left is the ntuple that was replaced, and nothing of who lost.
                assert not verdict.unfinished, (turn, ended, verdict.orphans)
            if here:
                remove(store, orphans_only=True)
                assert verify(store).orphans == ()
            store.close()
    return outcomes
