"""Record the files that Python code opens while a chunk is processed, and their content."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import xxhash

from hepcache.settings import settings

__all__ = [
    "OpenedFiles",
    "content_digest",
    "digest_since",
    "files_of_chunk",
    "opened_files",
    "unrecorded",
]

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What changes files without opening them, and how many of its arguments are paths.
_CHANGES = {
    "os.remove": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.mkdir": 1,
    "os.rmdir": 1,
}
_BLOCK = 1 << 20
_MOST_DIGESTS = 4096
# A file that changes twice within the clock's grain has one time of change.
_SETTLED_NS = 2_000_000_000


@dataclass(eq=False, slots=True)
class OpenedFiles:
    """Absolute paths of the files that were opened.

    Attributes
    ----------
    read
        Files that were opened for reading, existing or not.
    written
        Files and directories that were opened for writing, made, renamed or
        removed. If the code's result is reused instead of computed, these effects
        are missing.
    """

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def read_until_now(self, ignore: Callable[[str], bool]) -> set[str]:
        """Return what was read so far, while the recording goes on.

        Parameters
        ----------
        ignore
            As in :func:`opened_files`.
        """
        paths = {path for path in self.read if not (_left_out(path) or ignore(path))}
        directories = {path for path in paths if os.path.isdir(path)}  # noqa: PTH112
        return paths - directories - self.written


class _Recorders(threading.local):
    """The recorders of this thread, the innermost last."""

    def __init__(self) -> None:
        self.active: list[OpenedFiles] = []


_recorders = _Recorders()
_lock = threading.Lock()
_recording = 0  # in all threads
_installed = False
_digests: dict[str, tuple[tuple[int, ...], str]] = {}


@contextmanager
def opened_files(ignore: Callable[[str], bool] | None = None) -> Iterator[OpenedFiles]:
    """Record the files that Python code of this thread opens.

    Files that compiled code or other threads open are not recorded. Left out are
    directories, the modules that Python imports from its own directories, its byte code,
    and ``/proc``, ``/sys`` and ``/dev``.

    Parameters
    ----------
    ignore
        Function that returns whether an absolute path is left out; it is called when the
        recording ends.

    Yields
    ------
    OpenedFiles
        The opened files; complete when the recording has ended.
    """
    global _recording, _installed
    opened = OpenedFiles()
    with _lock:
        if not _installed:
            # A hook can't be removed: there is one, which does nothing while none records.
            sys.addaudithook(_hook)
            _installed = True
        _recording += 1
    _recorders.active.append(opened)
    try:
        yield opened
    finally:
        _recorders.active.remove(opened)
        with _lock:
            _recording -= 1
        left_out = ignore or (lambda _: False)
        opened.written -= {path for path in opened.written if _left_out(path) or left_out(path)}
        opened.read &= opened.read_until_now(left_out)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Leave out of all recordings of this thread what is opened meanwhile."""
    active = _recorders.active
    _recorders.active = []
    try:
        yield
    finally:
        _recorders.active = active


def content_digest(path: str) -> str | None:
    """Return a digest of a file's content, which is remembered until the file changes.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    str or None
        32 hexadecimal digits; ``None`` if no file can be read there.
    """
    path = os.path.abspath(path)  # noqa: PTH100 - links stay links
    try:
        if not os.path.isfile(path):  # noqa: PTH113 - opening a pipe would wait
            return None
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            before = _state(file.fileno())
            known = _digests.get(path)
            if known is not None and known[0] == before:
                return known[1]
            digest = xxhash.xxh3_128()
            while block := file.read(_BLOCK):
                digest.update(block)
            after = _state(file.fileno())
    except OSError:
        return None
    found = digest.hexdigest()
    if before == after and time.time_ns() - max(after[-2:]) > _SETTLED_NS:
        with _lock:
            if len(_digests) >= _MOST_DIGESTS:
                _digests.clear()
            _digests[path] = after, found
    return found


def digest_since(path: str, began_ns: int) -> str | None:
    """Return the digest of a file's content; what is no digest if it may have been another."""
    try:
        changed_ns = os.stat(path).st_ctime_ns  # noqa: PTH116
    except OSError:
        return None
    return "changed" if changed_ns > began_ns else content_digest(path)


def _state(descriptor: int) -> tuple[int, ...]:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a regular file")
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_dev, found.st_ino, found.st_size, *times


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # It is called for every event of every thread: what follows costs 0.1 us where none records.
    if not _recording or not (event == "open" or event in _CHANGES) or not _recorders.active:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if mode else bool(flags & _WRITES)
        paths = (path,)
    else:
        writes, paths = True, arguments[: _CHANGES[event]]
    for path in paths:
        _note(path, writes)


def _note(path: Any, writes: bool) -> None:
    if isinstance(path, int) or path is None:
        return  # a descriptor: what it belongs to was opened before
    try:
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay links
    except (TypeError, ValueError, OSError):
        return  # what is no path can't be opened either
    for opened in _recorders.active:
        (opened.written if writes else opened.read).add(name)


def _left_out(path: str) -> bool:
    if path.startswith(_SYSTEM) or "/__pycache__/" in f"{path}/":
        return True
    return path.endswith(_CODE) and path.startswith(_own_directories())


@cache
def _own_directories() -> tuple[str, ...]:
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    return tuple(os.path.join(path, "") for path in found)  # noqa: PTH118


def files_of_chunk(path: str) -> Callable[[str], bool]:
    """Return what tells the files that hepcache itself opens for a chunk."""
    chosen = settings()
    own = [chosen.cache_directory, Path(__file__).parents[1], chosen.group_directory]
    directories = tuple(f"{os.path.abspath(place)}{os.sep}" for place in own if place)  # noqa: PTH100
    # Files beside the catalogue have names that begin with its own.
    return _ignoring(path, (*directories, os.path.abspath(chosen.catalogue)))  # noqa: PTH100


@lru_cache(maxsize=256)
def _ignoring(path: str, directories: tuple[str, ...]) -> Callable[[str], bool]:
    """Return what tells a chunk's file, and all that is in some directories."""
    name = os.path.abspath(path)  # noqa: PTH100 - links stay links
    real = str(Path(name).resolve()) if "://" not in path else path

    def ignored(opened: str) -> bool:
        if opened in (name, real) or opened.startswith(directories):
            return True
        # Of modules, which are imported with the first chunk, the fingerprint tells.
        return opened.endswith(".py") and opened in _modules(len(sys.modules))

    return ignored


@lru_cache(maxsize=1)
def _modules(_: int) -> frozenset[str]:
    """Return the sources of all modules that were imported, of which there are so many."""
    sources = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return frozenset(source for source in sources if isinstance(source, str))
