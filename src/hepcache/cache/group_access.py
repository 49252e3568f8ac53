"""Who may see a file at its origin: what decides whether a group's cache may hold its columns."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hepcache.credentials import without_credentials


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


def shared_origin(url: str, prefixes: Iterable[str]) -> bool:
    """Tell whether every member of a group may read a URL, as an administrator has said.

    ``prefixes``: URLs of servers and directories. A prefix means what is below it: not another
    directory whose name begins alike, nor what ``..`` leads to.

    A URL with a password, a token or a signature is nobody's but its user's, wherever it is.

    >>> shared_origin("root://server//store/a.root", ["root://server//store"])
    True
    >>> shared_origin("root://server//store-of-mine/a.root", ["root://server//store"])
    False
    >>> shared_origin("https://me:secret@server/store/a.root", ["https://server/store/"])
    False
    """
    place = _place(url)
    if place is None:
        return False
    server, path = place
    for prefix in prefixes:
        shared = _place(prefix)
        if shared is not None and shared[0] == server:
            directory = shared[1].rstrip("/")
            if path.startswith(f"{directory}/"):
                return True
    return False


def _place(url: str) -> tuple[str, str] | None:
    """Return a URL's server and path; ``None`` where more than these decide what it leads to."""
    split = urlsplit(url)
    if not split.netloc or "@" in split.netloc or split.query or split.fragment:
        return None
    if "::" in url or without_credentials(url) != url:
        return None
    path = unquote(split.path)
    if {".", ".."} & set(path.split("/")) or "%" in path or "\\" in path:
        return None
    # In root:// URLs two slashes begin an absolute path, and servers take one for the same.
    return f"{split.scheme.lower()}://{split.netloc.lower()}", f"/{path.lstrip('/')}"


def _grants(found: os.stat_result, gid: int, *, file: bool) -> bool:
    everyone, members = (stat.S_IROTH, stat.S_IRGRP) if file else (stat.S_IXOTH, stat.S_IXGRP)
    if found.st_gid == gid:
        # The kernel looks at one class only: what others may, members may not.
        return bool(found.st_mode & members)
    return bool(found.st_mode & everyone)
