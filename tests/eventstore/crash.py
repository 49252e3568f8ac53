"""A writer that is killed: it says on standard output what was acknowledged.

Each line on standard input forks one, so that the imports are paid once.
"""

from __future__ import annotations

import os
import sys

import numpy as np

from hepcache.eventstore import connect


def say(text: object) -> None:
    """Write one line at once."""
    os.write(1, f"{text}\n".encode())


def write(url: str, first: int) -> None:
    """Write batches of 8 events with 3 products each, for ever."""
    with connect(url) as store:
        subrun = store.create("d").create(1, exist_ok=True).create(1, exist_ok=True)
        number = first
        while True:
            with store.batch(size=1 << 20) as batch:
                for event in range(number * 8, number * 8 + 8):
                    one = subrun.create(event, batch=batch)
                    for label in ("x", "y", "z"):
                        one.store(label, np.full(300, event), batch=batch)
            say(number)
            number += 1


def main() -> None:
    """Fork a writer for each line ``URL FIRST``."""
    for line in sys.stdin:
        url, first = line.split()
        child = os.fork()
        if child == 0:
            write(url, int(first))
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
