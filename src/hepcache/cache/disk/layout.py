"""Where things are in a cache directory.

::

    <root>/locks                      byte ranges locked while a column is being filled
    <root>/ledger                     shared counters and the memory of the eviction policy
    <root>/sent                       until when the bandwidth to other hosts is taken
    <root>/tmp/                       files being written; anything unlocked here is garbage
    <root>/quarantine/                damaged files, for the administrator to look at
    <root>/blobs-v1/<kind>/<name>     small metadata
    <root>/results/                   the user's stored results; never in a group's cache
    <root>/v1/<uuid>-<tag>/<tree>/<start>-<stop>/<column>.col
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from os import DirEntry
from pathlib import Path
from urllib.parse import quote, unquote

import xxhash

from hepcache.cache.model import ColumnKey
from hepcache.errors import CacheDirectoryError
from hepcache.io.atomic import make_directories

SUFFIX = ".col"
_MAX_NAME_BYTES = 255 - len(SUFFIX)


@lru_cache(maxsize=16384)
def to_file_name(name: str) -> str:
    """Return a name that any file system takes, different for different names.

    Names too long for a file name are replaced by a hash that begins with
    ``%-``, which no quoted name does; the key's digest in the file still tells
    two of them apart.

    >>> to_file_name("Jet_pt"), to_file_name("dir/Events"), to_file_name("..")
    ('Jet_pt', 'dir%2FEvents', '%2E.')
    """
    # uproot keeps bytes that are no UTF-8 as surrogates; any text must do.
    quoted = quote(name, safe="", errors="surrogatepass")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if not quoted:
        return "%-empty"
    if len(quoted) > _MAX_NAME_BYTES:
        return "%-" + xxhash.xxh3_128_hexdigest(name.encode("utf-8", "surrogatepass"))
    return quoted


def from_file_name(name: str) -> str | None:
    """Return the name that was made a file name, or ``None`` where only a hash is left."""
    if name == "%-empty":
        return ""
    return None if name.startswith("%-") else unquote(name, errors="surrogatepass")


class Layout:
    """Paths inside one cache directory."""

    def __init__(self, root: Path, *, group: bool = False) -> None:
        self.root, self.group = root, group
        self.directory_mode = 0o2770 if group else 0o700
        self.column_mode = 0o640 if group else 0o600
        self.state_mode = 0o660 if group else 0o600
        self.columns = root / "v1"
        self.blobs = root / "blobs-v1"
        self.temporary = root / "tmp"
        self.quarantine = root / "quarantine"
        self.results = root / "results"
        self.results_used = self.results / "used"  # bytes that they take of the cache's room
        self.locks = root / "locks"
        self.access_log = root / "ledger"
        self.sent = root / "sent"
        self._columns = str(self.columns)

    def file(self, uuid: str, tag: str) -> str:
        """Return the directory of one content of one ROOT file."""
        return f"{self._columns}/{to_file_name(f'{uuid}-{tag}')}"

    def segment(self, key: ColumnKey) -> str:
        """Return the directory that holds the columns of a key's segment."""
        uuid, tag, tree, start, stop, _ = key
        return f"{self.file(uuid, tag)}/{to_file_name(tree)}/{start}-{stop}"

    def column(self, key: ColumnKey) -> str:
        """Return the file of a column of a segment."""
        return f"{self.segment(key)}/{to_file_name(key.column)}{SUFFIX}"

    def blob(self, kind: str, name: str) -> str:
        """Return the file of a blob."""
        return f"{self.blobs}/{to_file_name(kind)}/{to_file_name(name)}"


def scan(directory: str) -> Iterator[DirEntry[str]]:
    """Yield the entries of a directory; none where it vanished or can't be read."""
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        return


def prepare(directory: Path, *, group: bool = False) -> Layout:
    """Make a cache directory where it is missing, and check whose it is.

    ``group``: whether it is shared by the members of a Unix group: then it and all below it
    belongs to that group (mode 2770), and any member may have made it.
    It returns its paths; the sub-directories exist, with mode 0700.
    Raises ``CacheDirectoryError``: another user owns it, others could write in it, or it can't be
    made.
    """
    root = Path(directory).expanduser().absolute()
    layout = Layout(root, group=group)
    try:
        # What is made above a group's cache lets its members pass, and none write.
        make_directories(root.parent, 0o755 if group else 0o700)
        for path in (root, layout.columns, layout.blobs, layout.temporary, layout.quarantine):
            make_directories(str(path), layout.directory_mode)
            _check_directory(path, root, group=group)
        for path in (layout.locks, layout.access_log):
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
