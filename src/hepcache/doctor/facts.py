"""Facts of this machine for the checks: the only module of them that looks and tries."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hepcache.cache.disk.layout import prepare
from hepcache.cache.disk.memory_map import map_file
from hepcache.doctor.nfs import Family, ModuleState
from hepcache.errors import CacheDirectoryError
from hepcache.io.locks import ByteLocks

_REDHAT = {"rhel", "fedora", "centos", "almalinux", "rocky"}
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Trial:
    """What happened to a file on a volume.

    ``locks_error``, ``maps_error``: why locks or memory maps don't work; ``None`` where they do.
    ``written_s``: the time it got, in seconds since the epoch; ``None`` where no file could be
    made.
    """

    locks_error: str | None
    maps_error: str | None
    written_s: float | None
    now_s: float


def existing(path: Path) -> Path:
    """Return a path, or its first parent that is there."""
    path = path.expanduser().absolute()
    while not path.exists():
        path = path.parent
    return path


def directory_problem(directory: Path, *, group: bool) -> str:
    """Return why a cache directory is refused, or could not be made; ``""`` if neither."""
    if not directory.exists():
        return making_problem(existing(directory))
    try:
        prepare(directory, group=group)
    except CacheDirectoryError as error:
        return error.problem
    return ""


def making_problem(parent: Path) -> str:
    """Return why nothing can be made in a directory; ``""`` if it can.

    That is tried: permissions say little to root and nothing of a read-only volume.
    """
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=".hepcache-doctor-"):
            return ""
    except OSError as error:
        return f"it can't be made in {parent}: {error.strerror or error}"


def try_files(directory: Path) -> Trial:
    """Write, lock and map a file in a directory, and remove it."""
    now_s = time.time()
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".hepcache-doctor-") as file:
            file.write(os.urandom(_PAGE))
            file.flush()
            written_s = os.fstat(file.fileno()).st_mtime
            return Trial(_try_locks(Path(file.name)), _try_map(file.fileno()), written_s, now_s)
    except OSError as error:
        problem = f"no file can be written in {directory}: {error.strerror or error}"
        return Trial(problem, problem, None, now_s)


def _try_locks(path: Path) -> str | None:
    ours = ByteLocks(path)
    theirs = ByteLocks(path)
    try:
        if not ours.try_lock(1):
            return "a lock on a new file is refused"
        return "two processes get the same lock" if theirs.try_lock(1) else None
    finally:
        ours.close()
        theirs.close()


def _try_map(descriptor: int) -> str | None:
    try:
        mapped = map_file(descriptor, _PAGE).tobytes()
    except OSError as error:
        return f"a file can't be mapped: {error.strerror or error}"
    same = mapped == os.pread(descriptor, _PAGE, 0)
    return None if same else "a mapped file reads otherwise than it was written"


def catalogue_problem(path: Path) -> str:
    """Return why the catalogue can't be written; ``""`` where it can, or could be made."""
    parent = existing(path)
    if parent != path.expanduser().absolute():
        return making_problem(parent)
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=1.0)
    except sqlite3.Error as error:
        return str(error)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        # Another process writes it now, so it can be written.
        return "" if "locked" in str(error) else str(error)
    finally:
        connection.close()
    return ""


def clock_synchronised() -> bool | None:
    """Return whether the kernel says that its clock is; ``None`` where it may not be asked."""
    # struct timex is some 200 bytes; all zero means to read and set nothing.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    return None if state < 0 else state != _TIME_ERROR


def running(proc: Path, name: str) -> bool:
    """Return whether a process of a name is seen."""
    for path in proc.glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                return True
        except OSError:
            continue  # it has ended
    return False


def module_state(root: Path, name: str) -> ModuleState:
    """Return where a kernel module is."""
    modules = root / "lib/modules" / _text(root / "proc/sys/kernel/osrelease").strip()
    if name in {line.split(" ")[0] for line in _lines(root / "proc/modules")}:
        return "loaded"
    if name in set(_names(modules / "modules.builtin")):
        return "built in"
    if name in set(_names(modules / "modules.dep")):
        return "loadable"
    return "missing" if (modules / "modules.dep").is_file() else "unknown"


def _names(path: Path) -> Iterator[str]:
    """Yield the modules of a list such as ``kernel/fs/netfs/netfs.ko.xz: ...``."""
    for line in _lines(path):
        yield line.partition(":")[0].rpartition("/")[2].partition(".")[0].replace("-", "_")


def family(root: Path) -> Family:
    """Return which package manager this distribution has."""
    release = dict(line.partition("=")[::2] for line in _lines(root / "etc/os-release"))
    names = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".replace('"', "").split()
    if {"debian", "ubuntu"} & set(names):
        return "debian"
    return "redhat" if _REDHAT & set(names) else "other"


def fscache_directory(root: Path) -> Path:
    """Return where cachefilesd keeps files, as it is configured."""
    for line in _lines(root / "etc/cachefilesd.conf"):
        name, _, value = line.strip().partition(" ")
        if name == "dir" and value.strip():
            return Path(value.strip())
    return Path("/var/cache/fscache")


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def missing_names() -> dict[str, str]:
    """Return the private names of other packages that are gone, and what is lost without each."""
    # These look the names up; they take seconds to import, which nothing else here needs.
    from hepcache.upstream import awkward, distributed, names, uproot  # noqa: F401

    return names.missing_names()
