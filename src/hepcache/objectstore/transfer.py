"""ROOT files to objects: pages of RNTuples as they are, TTrees converted on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import uproot

from hepcache import __version__
from hepcache.errors import ConfigurationError, ObjectDamagedError
from hepcache.objectstore.frames import EnvelopeKind, opened_envelope
from hepcache.objectstore.metadata import Metadata
from hepcache.objectstore.resume import ResumedStore
from hepcache.objectstore.rootfile import FileStore, file_metadata
from hepcache.objectstore.rootwriter import laid_out, open_writer
from hepcache.objectstore.sealed import sealed_cluster
from hepcache.objectstore.sink import Sink, WriteOptions
from hepcache.objectstore.store import Store

__all__ = ["Put", "find_tree", "put_files"]

_STEP = "64 MB"


@dataclass(frozen=True, slots=True)
class Put:
    """What was put.

    Attributes
    ----------
    name
        The ntuple's name.
    entries, clusters
        Of all files together; no clusters are counted where TTrees were converted.
    nbytes, kept_bytes
        Bytes of all objects, and of those that an earlier put had stored.
    converted
        Whether the files had TTrees.
    """

    name: str
    entries: int
    clusters: int
    nbytes: int
    kept_bytes: int
    converted: bool


def put_files(
    store: Store,
    files: Sequence[Path],
    *,
    tree: str | None = None,
    options: WriteOptions | None = None,
    convert: bool = False,
    check: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Put:
    """Put the same ntuple of one file or several into a store.

    Sealed pages are copied bit by bit, and their checksums looked at on the
    way. A put that was killed goes on where it stopped, if it is started
    again with the same files and options.

    Parameters
    ----------
    store
        Where to; what was there is replaced when all else is done.
    files
        Local ROOT files: RNTuples of one schema, or TTrees of the same branches.
    tree
        Name in the files; the only one, or ``Events``, if not given.
    options
        Mapping, names and sizes of objects; pages and compression matter for
        TTrees only.
    convert
        Whether TTrees may be converted.
    check
        Whether every object is read back in the end.
    progress
        Called with the entries that were done.

    Raises
    ------
    ConfigurationError
        The files do not belong together, or have TTrees and ``convert`` isn't set.
    ObjectDamagedError
        A page of a file is damaged, or an object is not what was put.
    ObjectStoreError
        A file can't be read, or the store fails.
    """
    options = options or WriteOptions()
    if not files:
        raise ConfigurationError("files", "one ROOT file or more", [])
    names = [find_tree(path, tree) for path in files]
    kinds = {kind for _, kind in names}
    if len(kinds) > 1:
        raise ConfigurationError("files", "RNTuples only, or TTrees only", "both")
    trees = kinds == {"TTree"}
    if trees and not convert:
        problem = "an RNTuple; --convert (convert=True) makes one of a TTree"
        raise ConfigurationError("tree", problem, f"TTree {names[0][0]!r} in {files[0]}")
    _, template = laid_out(store, options.mapping, options.template)
    resumed = ResumedStore(store, _identity(files, names, options), template)
    parts = [(path, name) for path, (name, _) in zip(files, names, strict=True)]
    put = _convert if trees else _copy
    name, entries, clusters, nbytes = put(resumed, parts, options, progress)
    if check:
        resumed.check()
    keys = resumed.root_keys
    name = name if keys is None else keys.name
    return Put(name, entries, clusters, nbytes, resumed.kept_bytes, trees)


def find_tree(path: Path, tree: str | None = None) -> tuple[str, str]:
    """Return name and kind (``"RNTuple"``, ``"TTree"``) of a file's tree.

    Raises
    ------
    ConfigurationError
        There is none, or several of which none is called ``Events``.
    ObjectDamagedError
        The file is no ROOT file.
    """
    try:
        with uproot.open(path) as file:
            classes = file.classnames(recursive=True, cycle=False)
    except (ValueError, OSError, KeyError, NotImplementedError) as error:
        problem = f"no ROOT file that can be read ({str(error).strip().splitlines()[0]})"
        raise ObjectDamagedError(str(path), "", problem) from error
    found = {
        name: "TTree" if kind == "TTree" else "RNTuple"
        for name, kind in classes.items()
        if kind in ("TTree", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")
    }
    wanted = tree or (next(iter(found)) if len(found) == 1 else "Events")
    if wanted not in found:
        expected = f"one of {', '.join(found)}" if found else "a TTree or RNTuple in the file"
        raise ConfigurationError(f"tree of {path}", expected, tree)
    return wanted, found[wanted]


def _identity(files: Sequence[Path], names: Sequence[Any], options: WriteOptions) -> str:
    """Return what makes two puts the same: nothing may change a single byte of any object."""
    parts = []
    for path in files:
        stat = path.stat()
        parts.append((os.fspath(path.resolve()), stat.st_size, stat.st_mtime_ns))
    settings = {**asdict(options), "puts": 0}
    text = repr((__version__, parts, names, sorted(settings.items(), key=str)))
    return hashlib.sha256(text.encode()).hexdigest()


def _copy(
    store: Store,
    parts: Sequence[tuple[Path, str]],
    options: WriteOptions,
    progress: Callable[[int], None] | None,
) -> tuple[str, int, int, int]:
    with ExitStack() as stack:
        sources = []
        for path, name in parts:
            source = FileStore(path)
            stack.callback(source.close)
            sources.append((source, file_metadata(source, os.fspath(path), name)))
        first = sources[0][1]
        for (path, _), (_, metadata) in zip(parts, sources, strict=True):
            if _form(metadata) != _form(first):
                expected = f"the same fields and columns as in {parts[0][0]}"
                raise ConfigurationError(f"ntuple in {path}", expected, "others")
        if len(sources) > 1 and any(one.first_element for one in first.schema.columns):
            expected = "fields that are there from the first entry on, to join files"
            raise ConfigurationError(f"ntuple in {parts[0][0]}", expected, "fields added later")
        writer = open_writer(
            store, first.header, mapping=options.mapping, template=options.template,
            object_bytes=options.object_bytes, puts=options.puts,
        )  # fmt: skip
        try:
            clusters = 0
            for source, metadata in sources:
                for number, cluster in enumerate(metadata.clusters):
                    pages = sealed_cluster(source, metadata, number)
                    if metadata is not first:
                        pages = [replace(column, first_element=None) for column in pages]
                    writer.write_cluster(cluster.entries, pages)
                    clusters += 1
                    if progress is not None:
                        progress(cluster.entries)
            writer.commit(first.footer.extension)
        except BaseException:
            writer.abort()
            raise
        return first.schema.name, writer.entries, clusters, writer.nbytes


def _form(metadata: Metadata) -> bytes:
    """Return the part of the schema that must be the same: all but name, text and writer."""
    payload = opened_envelope(EnvelopeKind.HEADER, memoryview(metadata.header))
    place = 8
    for _ in range(3):
        place += 4 + int.from_bytes(payload[place : place + 4], "little")
    return bytes(payload[:8]) + bytes(payload[place:]) + metadata.footer.extension


def _convert(
    store: Store,
    parts: Sequence[tuple[Path, str]],
    options: WriteOptions,
    progress: Callable[[int], None] | None,
) -> tuple[str, int, int, int]:
    name, entries = parts[0][1].rpartition("/")[2], 0
    sink = Sink(store, name, options)
    try:
        for path, tree_name in parts:
            with uproot.open(path) as file:
                tree = file[tree_name]
                for array in tree.iterate(step_size=_STEP):
                    sink.extend(array)
                    entries += len(array)
                    if progress is not None:
                        progress(len(array))
                if not tree.num_entries:
                    sink.extend(tree.arrays())
        sink.close()
    except BaseException:
        sink.abort()
        raise
    return name, entries, 0, sink.nbytes
