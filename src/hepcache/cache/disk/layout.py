"""Where things are in a cache directory.

::

    <root>/locks                      byte ranges locked while a column is being filled
    <root>/ledger                     shared counters and the memory of the eviction policy
    <root>/tmp/                       files being written; anything unlocked here is garbage
    <root>/quarantine/                damaged files, for the administrator to look at
    <root>/blobs-v1/<kind>/<name>     small metadata
    <root>/v1/<uuid>-<tag>/<tree>/<start>-<stop>/<column>.col
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from os import DirEntry
from pathlib import Path
from urllib.parse import quote, unquote

import xxhash

from hepcache.cache.model import ColumnKey

__all__ = ["SUFFIX", "Layout", "from_file_name", "make_directories", "scan", "to_file_name"]

SUFFIX = ".col"
_MAX_NAME_BYTES = 255 - len(SUFFIX)


@lru_cache(maxsize=16384)
def to_file_name(name: str) -> str:
    """Return a name that any file system takes, different for different names.

    Parameters
    ----------
    name
        Name of a tree or column.

    Notes
    -----
    Names too long for a file name are replaced by a hash that begins with
    ``%-``, which no quoted name does; the key's digest in the file still tells
    two of them apart.

    Examples
    --------
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
    """Paths inside one cache directory.

    Parameters
    ----------
    root
        The cache directory.
    group
        Whether it belongs to a group of users instead of one.

    Attributes
    ----------
    directory_mode, column_mode, state_mode
        Permissions of directories, of what one process writes once, and of
        what all processes write in place.
    """

    def __init__(self, root: Path, *, group: bool = False) -> None:
        self.root, self.group = root, group
        self.directory_mode = 0o2770 if group else 0o700
        self.column_mode = 0o640 if group else 0o600
        self.state_mode = 0o660 if group else 0o600
        self.columns = root / "v1"
        self.blobs = root / "blobs-v1"
        self.temporary = root / "tmp"
        self.quarantine = root / "quarantine"
        self.locks = root / "locks"
        self.ledger = root / "ledger"
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


def make_directories(path: str, mode: int) -> None:
    """Make a directory and what is missing above it, whatever the process's umask.

    Raises
    ------
    OSError
        One can't be made.
    """
    if os.path.isdir(path):  # noqa: PTH112
        return
    make_directories(os.path.dirname(path), mode)  # noqa: PTH120
    try:
        os.mkdir(path, mode)  # noqa: PTH102
    except FileExistsError:
        return  # by another process, which sets its mode
    if mode & 0o077:
        os.chmod(path, mode)  # noqa: PTH101


def scan(directory: str) -> Iterator[DirEntry[str]]:
    """Yield the entries of a directory; none where it vanished or can't be read."""
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        return
