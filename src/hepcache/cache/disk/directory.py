"""The cache directory: made private or a group's, and refused when others could reach into it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hepcache.cache.disk.layout import Layout, make_directories
from hepcache.errors import CacheDirectoryError

__all__ = ["prepare"]


def prepare(directory: Path, *, group: bool = False) -> Layout:
    """Make a cache directory where it is missing, and check whose it is.

    Parameters
    ----------
    directory
        The cache directory. Its parents are made too.
    group
        Whether it is shared by the members of a Unix group: then it and all
        below it belongs to that group (mode 2770), and any member may have
        made it.

    Returns
    -------
    Layout
        Its paths; the sub-directories exist, with mode 0700.

    Raises
    ------
    CacheDirectoryError
        Somebody else owns it, others could write in it, or it can't be made.
    """
    root = Path(directory).expanduser().absolute()
    layout = Layout(root, group=group)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for path in (root, layout.columns, layout.blobs, layout.temporary, layout.quarantine):
            make_directories(str(path), layout.directory_mode)
            _check_directory(path, root, group=group)
        for path in (layout.locks, layout.ledger):
            _make_file(path, layout.state_mode)
    except CacheDirectoryError:
        raise
    except OSError as error:
        reason = f"it can't be made: {error.strerror or error}"
        raise CacheDirectoryError(
            str(root), f"{reason}; choose another one with hepcache.cache.directory"
        ) from error
    return layout


def _make_file(path: Path, mode: int) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _check_directory(path: Path, root: Path, *, group: bool) -> None:
    found = path.stat() if path == root else path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        raise CacheDirectoryError(str(root), f"{path} is not a directory; remove it")
    if group:
        _check_group(path, root, mode, found.st_gid)
        return
    if found.st_uid != os.geteuid():
        raise CacheDirectoryError(
            str(root),
            f"{path} belongs to user id {found.st_uid}, who could forge what is in it; "
            "choose a directory of your own with hepcache.cache.directory",
        )
    # What lies inside is ours alone even where the root may be listed by others.
    if mode & (0o022 if path == root else 0o077):
        raise CacheDirectoryError(
            str(root),
            f"{path} has mode {mode:04o}, so others could reach into it; say 'chmod 700 {path}'",
        )


def _check_group(path: Path, root: Path, mode: int, gid: int) -> None:
    if os.geteuid() != 0 and gid not in {os.getegid(), *os.getgroups()}:
        raise CacheDirectoryError(
            str(root), f"{path} belongs to group id {gid}, of which you are not a member"
        )
    if mode & 0o007:
        raise CacheDirectoryError(
            str(root),
            f"{path} has mode {mode:04o}, so users outside the group could reach into it; "
            f"say 'chmod 2770 {path}'",
        )
    if mode & 0o2070 != 0o2070:
        raise CacheDirectoryError(
            str(root),
            f"{path} has mode {mode:04o}; members of the group must be able to write in it and "
            f"its files must stay the group's: say 'chmod 2770 {path}'",
        )
