"""Who may see a file at its origin: what decides whether a group's cache may hold its columns."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def may_read(path: str) -> bool:
    """Tell whether this process may read a local path now.

    ``path``: a path; of a URL that can't be known, hence ``False``.
    """
    return os.access(path, os.R_OK, effective_ids=True)


def readable_by_group(path: str, gid: int) -> bool:
    """Tell whether every member of a group can read a file at its origin.

    ``path``: a local path. Of a URL, whose server asks each user for credentials of their own,
    nothing is known, so the answer is ``False``.

    Only permission bits are looked at, of the file and of every directory
    above it. Access lists that grant more are not seen, which errs on the
    safe side; one that denies more than the bits shows in them as its mask.
    """
    try:
        real = Path(path).resolve(strict=True)
        places = [real, *real.parents]
        return all(_grants(place.stat(), gid, file=place == real) for place in places)
    except OSError:
        return False


def _grants(found: os.stat_result, gid: int, *, file: bool) -> bool:
    everyone, members = (stat.S_IROTH, stat.S_IRGRP) if file else (stat.S_IXOTH, stat.S_IXGRP)
    if found.st_gid == gid:
        # The kernel looks at one class only: what others may, members may not.
        return bool(found.st_mode & members)
    return bool(found.st_mode & everyone)
