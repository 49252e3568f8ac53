"""Puts two files at once, in processes that can be killed.

A line ``URI FILE DELAY FILE DELAY`` forks a process for each file from this one, which has
imported everything and has no threads; it is killed after so many seconds, unless they are 0.
The answer is how each ended: ``won``, ``lost``, ``killed`` or ``failed``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback

from hepcache.errors import ObjectConflictError
from hepcache.objectstore import open_store
from hepcache.rntuple import WriteOptions, put_files

WON, LOST, FAILED = 0, 3, 1
OUTCOMES = {WON: "won", LOST: "lost", -signal.SIGKILL: "killed"}


def put(uri: str, file: str, go: int) -> int:
    """Put a file when all others can begin, too; return the exit code."""
    os.read(go, 1)
    try:
        options = WriteOptions(mapping="page", puts=2)
        put_files(open_store(uri), [file], options=options)
    except ObjectConflictError:
        return LOST
    except BaseException:
        traceback.print_exc()
        return FAILED
    return WON


def main() -> None:
    """Do what lines of the standard input say."""
    for line in sys.stdin:
        uri, *rest = line.split()
        go, start = os.pipe()
        children = {}
        for file, delay in zip(rest[::2], map(float, rest[1::2]), strict=True):
            child = os.fork()
            if not child:
                os._exit(put(uri, file, go))
            children[child] = delay
        os.write(start, b"x" * len(children))
        begin = time.monotonic()
        for child, delay in sorted(children.items(), key=lambda item: item[1]):
            if delay:
                time.sleep(max(0, begin + delay - time.monotonic()))
                os.kill(child, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        os.close(go)
        os.close(start)
        print(*(OUTCOMES.get(code, "failed") for code in codes), flush=True)


if __name__ == "__main__":
    main()
