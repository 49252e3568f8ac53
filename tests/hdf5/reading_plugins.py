"""Reads a file in processes that have registered no filter yet: one for each way of reading."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from hepcache import hdf5
from hepcache.cli.app import app
from hepcache.eventstore import connect, ingest
from hepcache.formats.registry import probe

if __name__ == "__main__":
    path, original, other = map(Path, sys.argv[1:4])
    directory = path.parent


def command(*arguments: object) -> None:
    done = CliRunner().invoke(app, ["hdf5", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def tables() -> None:
    opened = hdf5.EventTables(path)
    (everything,) = opened.ranges(1)
    assert opened.read(everything, ["rec.vtx/map"])["rec.vtx/map"].any()


def store() -> None:
    with connect("mem://") as opened:
        ingest(opened, "nova", [path])


def appended() -> None:
    copy = directory / "copy.h5"
    copy.write_bytes(path.read_bytes())
    command("concat", other, "-o", copy, "--append", "--key", "evt", "--jobs", 1)


def concat() -> None:
    command("concat", path, "-o", directory / "more.h5", "--jobs", 1, "--key", "evt")


READERS: dict[str, Callable[[], None]] = {
    "check": lambda: command("check", path),
    "verify": lambda: command("verify", path, original, "--key", "evt", "--jobs", 1),
    "rechunk": lambda: command("rechunk", path, "-o", directory / "again.h5", "--jobs", 1),
    "concat": concat,
    "append": appended,
    "split": lambda: command("split", path, "--parts", 2, "-o", directory / "parts", "--jobs", 1),
    "tables": tables,
    "store": store,
    "probe": lambda: print(probe(str(path), "spill")),
}

if __name__ == "__main__":
    if "without" in sys.argv:
        sys.modules["hdf5plugin"] = None  # type: ignore[assignment]
    chosen = [name for name in sys.argv[4:] if name in READERS] or list(READERS)
    for name in chosen:
        child = os.fork()
        if not child:
            try:
                READERS[name]()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
