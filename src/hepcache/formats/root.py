"""ROOT files: opened once to describe a tree, and again where its columns are read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uproot
import xxhash
from uproot.behaviors.RNTuple import HasFields
from uproot.behaviors.TTree import TTree

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import BadFileError, OriginError
from hepcache.fileset.model import FileRecord
from hepcache.formats.source import Source, TreeRef
from hepcache.formats.ttree.branch_table import NotPlainError, read_plain_tree
from hepcache.formats.ttree.source import UprootSource
from hepcache.formats.ttree.tree_description import (
    Description,
    describe_plain_tree,
    describe_rntuple,
    describe_ttree,
)
from hepcache.io.replicas import PLACE_PATIENCE_S, other_content
from hepcache.io.retry import retried
from hepcache.io.transport import is_url, location
from hepcache.io.validator import Freshness, freshness_of, storage_options

_TREE_CLASSES = ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")


def describe(
    path: str, tree: str | None, options: Mapping[str, Any], fresh: Freshness
) -> FileRecord:
    """Open a file and describe one of its trees; see :func:`hepcache.formats.registry.probe`."""
    path, place = without_credentials(path), location(path)
    passed = {key: value for key, value in options.items() if key != "storage_options"}
    flat = {**passed, **storage_options(options)}
    try:
        _check_head(path, place, fresh.size)
        return retried(lambda: _examined(path, place, tree, flat, fresh))
    except BadFileError as error:
        # We say it in better words; of what type it is, is uproot's to say.
        cause = _raised_by_uproot(place, tree, flat)
        kind = error.kind if cause is None else type(cause)
        raise BadFileError(error.problems, kind) from cause
    except Exception as error:  # uproot raises whatever the bytes lead it to
        raise BadFileError({path: _reason(error)}, type(error)) from told_cause(error)


def _raised_by_uproot(
    place: str, tree: str | None, options: Mapping[str, Any]
) -> Exception | None:
    """Return what a reader without our checks meets when it opens the file, if anything."""
    try:
        with uproot.open({place: None}, **options) as directory:
            if tree is not None:
                int(directory[tree].num_entries)
    except Exception as error:
        return error
    return None


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
        raise BadFileError({path: f"which tree? {_listed(names)}"}, KeyError)
    wanted = tree.strip("/")
    name, _, cycle = wanted.partition(";")
    cycles = [int(key.rpartition(";")[2]) for key in trees if key.rpartition(";")[0] == name]
    if cycles and not cycle:
        return name
    if cycle.isdecimal() and int(cycle) in cycles:
        return name if int(cycle) == max(cycles) else f"{name};{int(cycle)}"
    raise BadFileError({path: f"no tree {tree!r} in it; {_listed(names)}"}, KeyError)


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
    facts = (
        uuid,
        name,
        entries,
        fresh.size,
        key.fSeekKey,
        key.fNbytes,
        key.fObjlen,
        str(key.fDatime),
        boundaries,
    )
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


def open_source(ref: TreeRef) -> Source:
    """Open a tree; an ntuple is read by pages."""
    source = UprootSource(ref, partial(_check_place, ref))
    if not isinstance(source.tree, HasFields):
        return source
    from hepcache.formats.rntuple import file_source

    try:
        return file_source(ref, source.origin, source.tree)
    except BaseException:
        source.close()
        raise


# Places that were found to have the content that runs want, with what their servers said of them.
_verified: dict[tuple[str, str, str], str] = {}


def _check_place(ref: TreeRef, place: str) -> None:
    """Raise an error unless a place has the same tree of the same file.

    Bytes of a tree are never mixed with those of another: size and UUID alone tell no
    version of a file from another that was made of it.
    """
    fresh = freshness_of(place, storage_options(ref.options), patience_s=PLACE_PATIENCE_S)
    if ref.validator and place == ref.place:
        if fresh.validator != ref.validator:
            problem = "the file was written while it was being analysed; run again"
            raise OriginError(ref.path, problem)
        return
    key = place, ref.tree, ref.content
    if fresh.settled and _verified.get(key) == fresh.validator:
        return
    found = describe(place, ref.tree, ref.options, fresh)
    if problem := other_content((ref.uuid, ref.tag), (found.uuid, found.tag)):
        raise OriginError(ref.path, problem)
    _verified[key] = fresh.validator
