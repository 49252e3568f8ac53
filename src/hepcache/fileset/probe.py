"""Open a file once and write down all that a run needs to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import uproot
import xxhash
from uproot.behaviors.RNTuple import HasFields
from uproot.behaviors.TTree import TTree

from hepcache.errors import BadFileError
from hepcache.fileset.describe import (
    Description,
    describe_plain_tree,
    describe_rntuple,
    describe_ttree,
)
from hepcache.fileset.freshness import Freshness, look, storage_options
from hepcache.fileset.model import FileRecord
from hepcache.fileset.paths import is_url, location, object_store, table_file, without_credentials
from hepcache.fileset.transient import retried
from hepcache.fileset.ttree import NotPlainError, read_plain_tree
from hepcache.settings import settings

__all__ = ["examine", "probe"]

_TREE_CLASSES = ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")


def probe(
    path: str, tree: str | None = None, *, options: Mapping[str, Any] | None = None
) -> FileRecord:
    """Open a file and describe one of its trees.

    Parameters
    ----------
    path
        Path or URL of a ROOT file.
    tree
        Name of a TTree or RNTuple in it, with directories and perhaps a cycle
        number. ``None`` takes the only tree, or ``Events`` if there are several.
    options
        Options for ``uproot.open``.

    Returns
    -------
    FileRecord
        The description.

    Raises
    ------
    BadFileError
        The file is missing, truncated, no ROOT file, has no such tree, or
        can't be read; the reason says which and what to do.
    """
    return examine(path, tree, options or {})[0]


def examine(
    path: str, tree: str | None, options: Mapping[str, Any]
) -> tuple[FileRecord, Freshness]:
    """Do what :func:`probe` does; return also the file's state, the same before and after."""
    store = object_store(path)
    if store is not None:
        described: tuple[FileRecord, Freshness] = store.examine(
            path, tree, storage_options(options)
        )
        return described
    public = without_credentials(path)
    tables = table_file(path)
    for _ in range(2):
        before = look(path, storage_options(options))
        if tables is not None:
            record: FileRecord = tables.describe(location(path), tree, before)
        else:
            record = _open(public, location(path), tree, options, before)
        after = look(path, storage_options(options))
        if after.validator == before.validator:
            return record, after
    raise BadFileError({public: "it is being written right now; try again when it is complete"})


def _open(
    path: str, place: str, tree: str | None, options: Mapping[str, Any], fresh: Freshness
) -> FileRecord:
    _check_head(path, place, fresh.size)
    passed = {key: value for key, value in options.items() if key != "storage_options"}
    flat = {**passed, **storage_options(options)}
    try:
        return retried(
            lambda: _examined(path, place, tree, flat, fresh), settings().origin_retries
        )
    except BadFileError:
        raise
    except Exception as error:  # uproot raises whatever the bytes lead it to
        raise BadFileError({path: _reason(error)}) from error


def _examined(
    path: str, place: str, tree: str | None, options: Mapping[str, Any], fresh: Freshness
) -> FileRecord:
    with uproot.open({place: None}, **options) as directory:
        _check_end(path, directory.file.fEND, fresh.size)
        name = _find_tree(path, directory, tree)
        return _describe(place, directory, name, fresh)


def _check_head(path: str, place: str, size: int) -> None:
    if size == 0:
        raise BadFileError({path: "the file is empty (0 bytes)"})
    if is_url(place):
        return
    try:
        with Path(place).open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise BadFileError({path: f"{error.strerror or error}"}) from error
    if head != b"root":
        raise BadFileError({path: f"not a ROOT file: it begins with {head!r}"})


def _check_end(path: str, end: int, size: int) -> None:
    if end > size:
        raise BadFileError({path: f"truncated: {size:,} bytes of {end:,}; copy it again"})


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0] if lines else 'no details'}"
    return f"damaged or unreadable ({without_credentials(reason)})"


def _find_tree(path: str, directory: Any, tree: str | None) -> str:
    """Return the key of the wanted tree, with the cycle number where it isn't the last."""
    classes = directory.classnames(recursive=True, cycle=True)
    trees = [key for key, name in classes.items() if name in _TREE_CLASSES]
    names: list[str] = list(dict.fromkeys(key.rpartition(";")[0] for key in trees))
    if tree is None:
        if len(names) == 1:
            return names[0]
        if "Events" in names:
            return "Events"
        raise BadFileError({path: f"which tree? {_listed(names)}"})
    wanted = tree.strip("/")
    name, _, cycle = wanted.partition(";")
    cycles = [int(key.rpartition(";")[2]) for key in trees if key.rpartition(";")[0] == name]
    if cycles and not cycle:
        return name
    if cycle.isdecimal() and int(cycle) in cycles:
        return name if int(cycle) == max(cycles) else f"{name};{int(cycle)}"
    raise BadFileError({path: f"no tree {tree!r} in it; {_listed(names)}"})


def _listed(names: list[str]) -> str:
    if not names:
        return "there is no tree at all in the file"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"the trees there are: {shown}"


def _describe(place: str, directory: Any, name: str, fresh: Freshness) -> FileRecord:
    key = directory.key(name)
    entries, described = _read(directory, name, key)
    uuid = str(directory.file.uuid)
    boundaries = tuple(sorted({0, entries, *(c for c in described.clusters if 0 < c < entries)}))
    # The key's time stamp is part of the file: copying and touching leave it.
    facts = (uuid, name, entries, fresh.size, key.fSeekKey, key.fNbytes, key.fObjlen,
             str(key.fDatime), boundaries)  # fmt: skip
    return FileRecord(
        path=place,
        tree=name,
        uuid=uuid,
        entries=entries,
        clusters=boundaries,
        size=fresh.size,
        validator=fresh.validator,
        tag=xxhash.xxh3_64_hexdigest(repr(facts).encode() + described.layout),
        fingerprint=described.fingerprint,
    )


def _read(directory: Any, name: str, key: Any) -> tuple[int, Description]:
    """Return a tree's entries and description; by uproot where we can't read it ourselves."""
    if key.fClassName == "TTree":
        chunk, _ = key.get_uncompressed_chunk_cursor()
        with suppress(NotPlainError):
            plain = read_plain_tree(chunk.raw_data.tobytes(), key.fKeylen)
            return plain.entries, describe_plain_tree(plain)
    tree = directory[name]
    if isinstance(tree, HasFields):
        return int(tree.num_entries), describe_rntuple(tree)
    if isinstance(tree, TTree):
        return int(tree.num_entries), describe_ttree(tree)
    raise TypeError(f"{name} is a {type(tree).__name__}, not a tree")
