"""The cache directory: made private, and refused when it is not ours alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hepcache.cache.layout import Layout
from hepcache.errors import CacheDirectoryError

__all__ = ["prepare"]


def prepare(directory: Path) -> Layout:
    """Make a cache directory where it is missing, and check whose it is.

    Parameters
    ----------
    directory
        The cache directory. Its parents are made too.

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
    layout = Layout(root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for path in (root, layout.columns, layout.blobs, layout.temporary, layout.quarantine):
            path.mkdir(mode=0o700, exist_ok=True)
            # What lies inside is ours alone even where the root may be listed by others.
            _check(path, root, 0o022 if path == root else 0o077)
    except CacheDirectoryError:
        raise
    except OSError as error:
        reason = f"it can't be made: {error.strerror or error}"
        raise CacheDirectoryError(
            str(root), f"{reason}; choose another one with hepcache.cache.directory"
        ) from error
    return layout


def _check(path: Path, root: Path, forbidden: int) -> None:
    found = path.stat() if path == root else path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise CacheDirectoryError(str(root), f"{path} is not a directory; remove it")
    if found.st_uid != os.geteuid():
        raise CacheDirectoryError(
            str(root),
            f"{path} belongs to user id {found.st_uid}, who could forge what is in it; "
            "choose a directory of your own with hepcache.cache.directory",
        )
    if found.st_mode & forbidden:
        raise CacheDirectoryError(
            str(root),
            f"{path} has mode {stat.S_IMODE(found.st_mode):04o}, so others could reach into it; "
            f"say 'chmod 700 {path}'",
        )
