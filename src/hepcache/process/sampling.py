"""Where the time of a processor goes: looks, fifty times a second, at what it is doing.

A look takes some microseconds, which changes nothing in what is measured, as a profile of every
call would; it sees functions, not single calls. What Python can't interrupt, such as a long sort,
counts from its beginning to its end, because each look stands for the time since the last.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from inspect import currentframe
from pathlib import Path
from types import CodeType, FrameType

__all__ = ["sampled"]

_INTERVAL_S = 0.02
_IDLE_LOOKS = 50
_MOST_FUNCTIONS = 8
_HEPCACHE = str(Path(__file__).parents[1]) + os.sep


@contextmanager
def sampled(seconds: dict[str, float]) -> Iterator[None]:
    """Sample this thread while it runs a user's code.

    Parameters
    ----------
    seconds
        Receives, when it ends, the seconds of each function of the user's own, those within it
        included, that most time was spent in. The function that was called first is left out,
        and so is the time in which hepcache read or computed columns for them.
    """
    looks = _Looks(threading.get_ident(), _depth(currentframe()), time.perf_counter())
    _sampler.begin(looks)
    try:
        yield
    finally:
        _sampler.end(looks)
        most = sorted(dict(looks.found).items(), key=lambda item: -item[1])[:_MOST_FUNCTIONS]
        for code, taken in most:
            name = _name(code)
            seconds[name] = round(seconds.get(name, 0.0) + taken, 4)


@dataclass(eq=False, slots=True)
class _Looks:
    """What was seen of a thread: seconds by function; ``last`` is when it was looked at."""

    thread: int
    depth: int
    last: float
    found: defaultdict[CodeType, float] = field(default_factory=lambda: defaultdict(float))

    def look(self, frame: FrameType | None, now: float) -> None:
        for code in _codes(frame, self.depth):
            self.found[code] += now - self.last
        self.last = now


class _Sampler:
    """One thread that looks at all others, and ends when there was nothing to see for a second.

    A thread for each chunk would take longer to begin than a short chunk takes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._watched: set[_Looks] = set()
        self._runs = False

    def begin(self, looks: _Looks) -> None:
        with self._guard:
            self._watched.add(looks)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="hepcache-sampler", daemon=True).start()

    def end(self, looks: _Looks) -> None:
        with self._guard:
            self._watched.discard(looks)

    def _run(self) -> None:
        idle = 0
        while idle < _IDLE_LOOKS:
            time.sleep(_INTERVAL_S)
            with self._guard:
                watched = list(self._watched)
                idle = 0 if watched else idle + 1
                self._runs = idle < _IDLE_LOOKS
            if watched:
                _look(watched)


def _look(watched: Sequence[_Looks]) -> None:
    # The garbage collector may begin while frames are made, and what it calls lets other threads
    # go on: their frames are gone before they are made (CPython issue 106883, up to Python 3.12).
    collects = gc.isenabled()
    gc.disable()
    try:
        # Python documents it, in spite of its name, for this purpose.
        frames = sys._current_frames()  # noqa: SLF001
        # With this one among them they would hold each other, and all columns that a chunk has
        # used, until Python next looks for cycles.
        del frames[threading.get_ident()]
        now = time.perf_counter()
        for looks in watched:
            looks.look(frames.get(looks.thread), now)
    finally:
        if collects:
            gc.enable()


_sampler = _Sampler()


def _after_fork() -> None:
    global _sampler
    _sampler = _Sampler()  # a fork has no other threads, and maybe their locks


os.register_at_fork(after_in_child=_after_fork)


def _codes(frame: FrameType | None, depth: int) -> set[CodeType]:
    """Return the user's own functions that run now, below the one that was called first."""
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    codes = codes[::-1][depth:]
    if any(code.co_filename.startswith(_HEPCACHE) for code in codes):
        return set()
    return {code for code in codes if _is_own(code)} - set(codes[:1])


def _depth(frame: FrameType | None) -> int:
    """Return how many frames there are up to the one that entered the context."""
    depth = -2  # this module's and contextlib's own
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


@lru_cache(maxsize=4096)
def _is_own(code: CodeType) -> bool:
    if code.co_name.startswith("<"):
        return False  # it belongs to the function around it
    return not code.co_filename.startswith(("<", *_others()))


@cache
def _others() -> tuple[str, ...]:
    """Return where code lies that is not the user's own."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(path + os.sep for path in found)


def _name(code: CodeType) -> str:
    place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return f"{code.co_qualname.replace('<locals>.', '')} ({place})"
