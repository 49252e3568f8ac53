"""Paths and URLs: what a user may write, and the files it stands for."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import fsspec

from hepcache.credentials import told_cause
from hepcache.errors import BadFilesetError
from hepcache.io.transport import is_url, location

_TREE = re.compile(r"^(?P<path>.*\.(?:root|h5|hdf5)):(?P<tree>[^:]+)$")


def split_tree(path: str) -> tuple[str, str | None]:
    """Separate ``file.root:tree`` in file and tree.

    >>> split_tree("root://server:1094//a.root:Events")
    ('root://server:1094//a.root', 'Events')
    >>> split_tree("root://server:1094//a.root")
    ('root://server:1094//a.root', None)
    """
    match = _TREE.match(path)
    return (match["path"], match["tree"]) if match else (path, None)


def find_files(path: str) -> list[tuple[str, str | None]]:
    """Return the files a path, directory, glob or URL stands for.

    ``path``: any of these; a tree may follow a colon where the path ends in ``.root``.
    It returns path and tree (or ``None``) of each file: sorted for a directory and a glob. A
    single path is returned whether it exists or not, so that all files that are missing can be
    named together later.
    """
    plain, tree = split_tree(path)
    if _is_glob(plain):
        return [(found, tree) for found in _glob(plain)]
    if not is_url(plain) and os.path.isdir(location(plain)):  # noqa: PTH112
        return [(found, tree) for found in _glob(f"{glob.escape(plain.rstrip('/'))}/**/*.root")]
    return [(plain, tree)]


def label_directories(paths: Sequence[str]) -> list[str]:
    """Name the directory of each file, with as many parents as tell all apart.

    >>> label_directories(["/d/2017/DY/a.root", "/d/2018/DY/a.root", "/d/tt/a.root"])
    ['2017/DY', '2018/DY', 'tt']
    """
    directories = [_directory(path) for path in paths]
    parts = {path: PurePosixPath(path).parts for path in directories}
    depths = dict.fromkeys(parts, 1)
    while True:
        labels = {
            path: "/".join(part.strip("/") for part in parts[path][-depth:]) or "files"
            for path, depth in depths.items()
        }
        counts = Counter(labels.values())
        clashing = [
            path for path in parts if counts[labels[path]] > 1 and depths[path] < len(parts[path])
        ]
        if not clashing:
            return [labels[path] for path in directories]
        for path in clashing:
            depths[path] += 1


def _directory(path: str) -> str:
    if is_url(path):
        split = urlsplit(path)
        if "+" in split.scheme and split.fragment:
            # A place inside a store: what a directory is to a file system.
            return f"/{unquote(split.fragment)}"
        return str(PurePosixPath(f"/{split.netloc}/{split.path.lstrip('/')}").parent)
    return os.path.dirname(location(path))  # noqa: PTH120


def _is_glob(path: str) -> bool:
    if is_url(path):
        return "*" in path  # a question mark begins a query, brackets hold an IPv6 address
    return glob.has_magic(path) and not os.path.exists(location(path))  # noqa: PTH110


def _glob(pattern: str) -> list[str]:
    if not is_url(pattern):
        expanded = os.path.expanduser(pattern.removeprefix("file://"))  # noqa: PTH111
        return sorted(found for found in glob.glob(expanded, recursive=True) if found)  # noqa: PTH207
    try:
        filesystem, inner = fsspec.core.url_to_fs(pattern)
        return sorted(filesystem.unstrip_protocol(found) for found in filesystem.glob(inner))
    except Exception as error:  # each protocol has its own tree of errors
        raise BadFilesetError(
            f"can't be searched ({type(error).__name__}: {error}); list its files instead", pattern
        ) from told_cause(error)
