"""Run by test_journal.py: do something, and be killed at the n-th call of the system."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hepcache import hdf5
from hepcache.hdf5 import journal, output, plan

_CALLS = ("pwrite", "fsync", "ftruncate")


def killed_at(call: int, action: Callable[[], Any]) -> bool:
    """Fork, count calls, kill the child at one of them; tell whether it came to that."""
    child = os.fork()
    if child == 0:
        left = [call]

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def wrapper(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    if function.__name__ == "pwrite":  # half of it is written
                        half = bytes(arguments[1])[: len(arguments[1]) // 2]
                        function(arguments[0], half, *arguments[2:])
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments)

            return wrapper

        class Counting:
            def __getattr__(self, name: str) -> Any:
                value = getattr(os, name)
                return counted(value) if name in _CALLS else value

        journal.os = Counting()  # type: ignore[assignment]
        output._CHECKPOINT_S = 0.0
        plan._LEAST_TASK_BYTES = 512
        plan._FILE_BYTES = 0
        try:
            action()
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(2)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("the action failed")
    return os.WIFSIGNALED(status)


def main() -> None:
    """Kill at every call in turn, and keep what there is after each."""
    what, out, calls, *inputs = sys.argv[1:]
    options = hdf5.TableOptions(key="evt", chunk_rows=32, wide_chunk_rows=16)
    actions = {
        "append": lambda: hdf5.append(inputs, out, options, jobs=1),
        "concat": lambda: hdf5.concatenate(inputs, out, options, jobs=1),
    }
    seen = []
    for call in json.loads(calls):
        if what == "append":
            shutil.copy(f"{out}.kept", out)
        if not killed_at(call, actions[what]):
            break
        seen.append(call)
        keep(Path(out), call)
    print(json.dumps(seen))


def keep(out: Path, call: int) -> None:
    """Move all that a reader would find after the kill to another name."""
    after = f"{out.name}.after{call}"
    if out.exists():
        out.rename(out.with_name(after))
    for suffix in (".part", ".job", ".journal", ".part-journal"):
        beside = out.with_name(f".{out.name}{suffix}")
        if beside.exists():
            beside.rename(out.with_name(f".{after}{suffix}"))


if __name__ == "__main__":
    main()
