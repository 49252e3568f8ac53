"""What only the user can reach: directories, and the key with which results are signed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from hepcache.errors import CacheDirectoryError
from hepcache.io.atomic import write_atomically
from hepcache.io.locks import exclusive

_KEY_BYTES = 32
_MAKING = (1 << 62) + 1  # a lock beyond every work's number


def check_private(directory: Path) -> None:
    """Check that a directory is the user's alone.

    Raises ``CacheDirectoryError``: it is a link or no directory, another user's, or others could
    reach into it; ``OSError``: it is not there.
    """
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise CacheDirectoryError(str(directory), "it is not a directory; remove it")
    if found.st_uid != os.geteuid():
        raise CacheDirectoryError(
            str(directory),
            f"it belongs to user id {found.st_uid}, who could forge what is in it; remove it",
        )
    if found.st_mode & 0o077:
        raise CacheDirectoryError(
            str(directory),
            f"it has mode {stat.S_IMODE(found.st_mode):04o}, and results are private: "
            f"say 'chmod 700 {directory}'",
        )


def check_parent(directory: Path) -> None:
    """Check that nobody else can put another directory in the place of one.

    Raises ``CacheDirectoryError``: others could.
    """
    mode = directory.parent.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise CacheDirectoryError(
            str(directory.parent),
            f"it has mode {stat.S_IMODE(mode):04o}, so others could replace {directory}; "
            f"say 'chmod go-w {directory.parent}'",
        )


def user_key(path: Path, locks: Path) -> bytes:
    """Return the key in a file; a new one where there is none that only the user can read.

    ``path``: the file. Processes that make it at the same time get the same key.
    ``locks``: a file of locks.
    Raises ``OSError``: there is none and it can't be made.
    """
    key = _read(path)
    if key is not None:
        return key
    with exclusive(locks, _MAKING):
        for _ in range(8):
            key = _read(path)
            if key is not None:
                return key
            with suppress(FileNotFoundError):
                path.unlink()
            # Where locks don't work, the first writer still wins: its file gets the name.
            write_atomically(path, os.urandom(_KEY_BYTES), mode=0o600, overwrite=False)
    raise OSError(errno.EIO, "the key does not stay as it is written", str(path))


def _read(path: Path) -> bytes | None:
    """Return the key in a file, or ``None`` where there is none that is only the user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EACCES):
            return None
        raise  # too many open files, say: the key is as good as before
    try:
        found = os.fstat(descriptor)
        private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not private or not stat.S_ISREG(found.st_mode) or found.st_size != _KEY_BYTES:
            return None
        key = os.read(descriptor, _KEY_BYTES)
    finally:
        os.close(descriptor)
    return key if len(key) == _KEY_BYTES else None
