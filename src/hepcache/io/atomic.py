"""Files that appear under their names whole or not at all, and directories of a given mode.

A file is written under a temporary name, which it loses only when it is
complete, so that no reader ever sees a part and a crash leaves at worst the
temporary file. Outputs that grow in place, as an appended HDF5 file does, have
a journal instead.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAX_PIECES = 512  # of one writev; the kernel takes 1024
_serial = itertools.count()
_token = os.urandom(4).hex()


def write_atomically(
    path: str | os.PathLike[str],
    *pieces: Buffer,
    temporary: str | None = None,
    locked: bool = False,
    mode: int | None = None,
    directory_mode: int | None = None,
    durable: bool = True,
    overwrite: bool = True,
    modified_ns: int | None = None,
) -> Path:
    """Write a file so that readers see the old content or the new, never a part.

    ``pieces``: its bytes, in order.
    ``temporary``: the name to write under, on the same volume; one beside the file if not given.
    ``locked``: whether to lock the temporary file meanwhile, which tells a cleaner that its writer
    lives.
    ``mode``, ``directory_mode``: permissions of the file and of directories that are made; as the
    process's umask has them if not given.
    ``durable``: whether to wait until the content is on the disk, so that a power cut can't tear
    it. See :func:`sync` for its name.
    ``overwrite``: whether a file of this name is replaced; the first one stays if not.
    ``modified_ns``: time of modification to set; now if not given.
    Raises ``OSError``: it can't be written; nothing is left behind, and what was there stays.
    """
    target = os.fspath(path)
    part = temporary or temporary_name(target)
    if temporary is None and not os.path.isdir(os.path.dirname(part)):  # noqa: PTH112, PTH120
        _make_parent(part, directory_mode)
    descriptor = _made(part, 0o666 if mode is None else mode, locked=locked)
    try:
        _write(descriptor, pieces)
        if mode is not None and mode & 0o077:
            os.fchmod(descriptor, mode)  # the umask cuts what others than the owner may
        if modified_ns is not None:
            os.utime(descriptor, ns=(modified_ns, modified_ns))
        if durable:
            os.fsync(descriptor)
        _name(part, target, directory_mode, overwrite=overwrite)
    except BaseException:
        unlink(part)
        raise
    finally:
        os.close(descriptor)
    if not overwrite:
        unlink(part)  # the file, if it is this one, has a link of its own
    return Path(path)


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside a file; it becomes the file if the block ends without error.

    ``path``: the file, which is replaced if it is there.
    ``durable``: as for :func:`write_atomically`.
    Raises ``OSError``: it can't be renamed.
    """
    part = Path(temporary_name(os.fspath(path)))
    try:
        yield part
        if durable:
            sync(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def temporary_name(path: str) -> str:
    """Return a hidden name beside a file that no other writer uses."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{os.getpid()}-{_token}-{next(_serial)}.part")  # noqa: PTH118


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: str | os.PathLike[str], mode: int = 0o700) -> None:
    """Make a directory and what is missing above it, whatever the process's umask.

    Raises ``OSError``: one can't be made.
    """
    # Strings: a cache makes a directory for every segment.
    text = os.fspath(path)
    if not text or os.path.isdir(text):  # noqa: PTH112
        return
    make_directories(os.path.dirname(text), mode)  # noqa: PTH120
    try:
        os.mkdir(text, mode)  # noqa: PTH102
    except FileExistsError:
        return  # by another process, which sets its mode
    os.chmod(text, mode)  # noqa: PTH101


def _make_parent(path: str, mode: int | None) -> None:
    parent = os.path.dirname(path)  # noqa: PTH120
    if not parent:
        return  # a name in the working directory
    if mode is None:
        os.makedirs(parent, exist_ok=True)  # noqa: PTH103
    else:
        make_directories(parent, mode)


def _made(part: str, mode: int, *, locked: bool) -> int:
    """Make a file that is not there yet, and return its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        descriptor = os.open(part, flags, mode)
        try:
            if not locked:
                return descriptor
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            unlink(part)
            raise
        # A cleaner saw it before it was locked, and took it for a dead writer's.
        os.close(descriptor)


def _write(descriptor: int, pieces: Sequence[Buffer]) -> None:
    views = [memoryview(piece) for piece in pieces]
    waiting = [view.cast("B") for view in views if view.nbytes]
    while waiting:
        written = os.writev(descriptor, waiting[:_MAX_PIECES])
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = 0
        while done < len(waiting) and written >= len(waiting[done]):
            written -= len(waiting[done])
            done += 1
        waiting = waiting[done:]
        if written:
            waiting[0] = waiting[0][written:]


def _name(part: str, target: str, directory_mode: int | None, *, overwrite: bool) -> None:
    """Give a complete file its name."""
    for _ in range(8):
        try:
            if overwrite:
                os.rename(part, target)  # noqa: PTH104 - a Path costs more than the call
            else:
                os.link(part, target)
        except FileExistsError:
            return
        except FileNotFoundError:
            # Not made yet, or an evictor has just removed the empty directory.
            _make_parent(target, directory_mode)
        else:
            return
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target)


def unlink(path: str) -> bool:
    """Remove a file; tell whether that was possible."""
    try:
        os.unlink(path)  # noqa: PTH108 - a cache has many, and a Path costs more than the call
    except OSError:
        return False
    return True
