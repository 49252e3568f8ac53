"""Paths and URLs: what a user may write, and the files it stands for."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec

from hepcache.errors import BadFileError, BadFilesetError

__all__ = [
    "find_files", "is_event_url", "is_store_uri", "is_url", "label_directories", "location",
    "object_store", "split_tree", "table_file", "without_credentials",
]  # fmt: skip

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://|^[a-z]+::")
_STORE = re.compile(r"(?i)^(?:ntpl\+[a-z0-9+]+|rados|daos)://")
_TABLES = re.compile(r"(?i)\.(?:h5|hdf5)$")
_TREE = re.compile(r"^(?P<path>.*\.(?:root|h5|hdf5)):(?P<tree>[^:]+)$")
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")
_SECRET = re.compile(
    r"(?i)([?&][^=&\s]*(?:auth|cred|key|pass|policy|secret|sig|token)[^=&\s]*)=[^&\s'\"]+"
)
_BEARER = re.compile(r"(?i)(\bbearer(?:\s|%20)+|authorization\W+basic\s+)[\w.~+/=%-]{8,}")


def is_url(path: str) -> bool:
    """Return whether ``path`` must be read through a remote protocol."""
    return bool(_URL.match(path)) and not path.startswith("file://")


def is_store_uri(path: str) -> bool:
    """Return whether ``path`` names an ntuple in an object store, and not a file.

    Examples
    --------
    >>> is_store_uri("rados://hep/zee"), is_store_uri("s3://bucket/file.root")
    (True, False)
    """
    return bool(_STORE.match(path))


def is_event_url(path: str) -> bool:
    """Return whether ``path`` names a dataset of an event store.

    Examples
    --------
    >>> is_event_url("events+file:///ssd/nova#nova/prod5")
    True
    """
    return path.startswith("events+")


def object_store(path: str) -> Any:
    """Return the module that describes what ``path`` names, if that is no file; or None.

    That is an ntuple in an object store, or a dataset of an event store. The modules
    are in rooms above this one, which is why they are found by name, and only
    when they are needed.
    """
    if is_event_url(path):
        return import_module("hepcache.eventstore.catalogued")
    return import_module("hepcache.objectstore.catalogued") if is_store_uri(path) else None


def table_file(path: str) -> Any:
    """Return the module that describes files of HDF5 tables, if ``path`` is one; or None.

    Its name says so. The module is found by name, as that of object stores is.

    Raises
    ------
    BadFileError
        It is a URL, or packages are missing that HDF5 files need.
    """
    if not _TABLES.search(path):
        return None
    if is_url(path):
        raise BadFileError({
            without_credentials(path): "HDF5 files are read from a file system; mount it, or copy "
            "the file"
        })  # fmt: skip
    try:
        return import_module("hepcache.hdf5.catalogued")
    except ImportError as error:
        raise BadFileError({path: str(error)}) from error


def location(path: str) -> str:
    """Return where a path leads from any directory: absolute, or the URL as it is.

    Examples
    --------
    >>> location("file:///data/a.root")
    '/data/a.root'
    >>> location("root://server//data/a.root")
    'root://server//data/a.root'
    """
    if is_url(path):
        return path
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    # Not resolved: a link may be pointed at another file tomorrow.
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def without_credentials(text: str) -> str:
    """Return a text in which passwords, signatures and tokens of URLs are hidden.

    Parameters
    ----------
    text
        A URL, or a message that has some in it.

    Examples
    --------
    >>> without_credentials("https://me:secret@host/a.root?X-Amz-Signature=12ab&part=1")
    'https://me:***@host/a.root?X-Amz-Signature=***&part=1'
    >>> without_credentials("root://host//a.root")
    'root://host//a.root'
    """
    text = _PASSWORD.sub(r"\1:***@", text)
    return _BEARER.sub(r"\1***", _SECRET.sub(r"\1=***", text))


def split_tree(path: str) -> tuple[str, str | None]:
    """Separate ``file.root:tree`` in file and tree.

    Examples
    --------
    >>> split_tree("root://server:1094//a.root:Events")
    ('root://server:1094//a.root', 'Events')
    >>> split_tree("root://server:1094//a.root")
    ('root://server:1094//a.root', None)
    """
    match = _TREE.match(path)
    return (match["path"], match["tree"]) if match else (path, None)


def find_files(path: str) -> list[tuple[str, str | None]]:
    """Return the files a path, directory, glob or URL stands for.

    Parameters
    ----------
    path
        Any of these; a tree may follow a colon where the path ends in ``.root``.

    Returns
    -------
    list of tuple
        Path and tree (or ``None``) of each file: sorted for a directory and
        a glob. A single path is returned whether it exists or not, so that
        all files that are missing can be named together later.
    """
    plain, tree = split_tree(path)
    if _is_glob(plain):
        return [(found, tree) for found in _glob(plain)]
    if not is_url(plain) and os.path.isdir(location(plain)):  # noqa: PTH112
        return [(found, tree) for found in _glob(f"{glob.escape(plain.rstrip('/'))}/**/*.root")]
    return [(plain, tree)]


def label_directories(paths: Sequence[str]) -> list[str]:
    """Name the directory of each file, with as many parents as tell all apart.

    Examples
    --------
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
    if is_event_url(path):
        return "/" + unquote(path.partition("#")[2])
    if is_url(path):
        split = urlsplit(path)
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
    except (ImportError, OSError, ValueError, NotImplementedError) as error:
        raise BadFilesetError(
            f"can't be searched ({type(error).__name__}: {error}); list its files instead", pattern
        ) from error
