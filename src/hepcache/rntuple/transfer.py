"""ROOT files to objects, and objects back to ROOT files.

Pages of RNTuples are copied as they are; TTrees are converted on the way.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uproot
import xxhash
from numpy.typing import NDArray

from hepcache import __version__
from hepcache.errors import ConfigurationError, ObjectConflictError, ObjectDamagedError
from hepcache.io.atomic import atomic_file
from hepcache.io.root_blocks import ENVELOPES, compressed
from hepcache.objectstore import FileStore, Pending, Request, Store
from hepcache.rntuple.anchor import read_anchor
from hepcache.rntuple.envelopes import (
    IN_FILE,
    ClusterGroup,
    EnvelopeKind,
    Footer,
    Locator,
    opened_envelope,
    pack_footer,
)
from hepcache.rntuple.metadata import Metadata, file_metadata, load_metadata
from hepcache.rntuple.naming import (
    ROOT_KEYS,
    first_free,
    new_own_name,
    object_number,
    own_name,
    own_template,
    prefix_of,
)
from hepcache.rntuple.pagelist import Cluster, ColumnPages, pack_page_list
from hepcache.rntuple.pages import SealedColumn
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.root_on_daos import opened, root_keys_of
from hepcache.rntuple.write import Sink, WriteOptions, chosen_layout, conflict, open_writer
from hepcache.upstream.uproot import FileRNTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

JOURNALS = ".put/"
"""Below it are the journals of puts, which have a hash of every object that was stored."""

_SHARED = "journal"  # of all puts to a store where objects have ROOT's names

_JOURNAL_BYTES = 32 << 20
_JOURNAL_PART = 100
_STEP = "64 MB"
# Bytes of a blob in a file; ROOT's keys take 1 GiB.
_BLOB_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class Put:
    """The result of :func:`put_files`.

    Attributes
    ----------
    name
        The ntuple's name.
    entries, clusters
        Numbers for all files together; clusters are not counted if TTrees were converted.
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
    store: Store | str,
    files: Sequence[str | os.PathLike[str]],
    *,
    tree: str | None = None,
    options: WriteOptions | None = None,
    convert: bool = False,
    check: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Put:
    """Put the same ntuple of one file or several into a store.

    Sealed pages are copied bit by bit, and their checksums are verified. To
    continue a put that was killed, call it again with the same files and
    options.

    Parameters
    ----------
    store
        The target, a store or a URI; the last step replaces an existing ntuple.
    files
        Local ROOT files: RNTuples of one schema, or TTrees of the same branches.
    tree
        Name in the files; by default the only one, or ``Events``.
    options
        Mapping, names and sizes of objects; pages and compression apply to
        TTrees only.
    convert
        Whether TTrees may be converted.
    check
        Whether every object is read back at the end.
    progress
        Called with the number of finished entries.

    Raises
    ------
    ConfigurationError
        The files do not belong together, or have TTrees and ``convert`` isn't set.
    ObjectDamagedError
        A page of a file is damaged, or an object differs from what was put.
    ObjectConflictError
        Another put has published at this URI meanwhile. Its ntuple is complete, and
        nothing is left of this put.
    ObjectStoreError
        A file can't be read, or the store fails.
    """
    options = options or WriteOptions()
    if not files:
        raise ConfigurationError("files", "one ROOT file or more", [])
    paths = [Path(file) for file in files]
    names = [_find_tree(path, tree) for path in paths]
    kinds = {kind for _, kind in names}
    if len(kinds) > 1:
        raise ConfigurationError("files", "RNTuples only, or TTrees only", "both")
    trees = kinds == {"TTree"}
    if trees and not convert:
        problem = "an RNTuple; --convert (convert=True) makes one of a TTree"
        raise ConfigurationError("tree", problem, f"TTree {names[0][0]!r} in {paths[0]}")
    parts = [(path, name) for path, (name, _) in zip(paths, names, strict=True)]
    identity = _identity(paths, names, options)
    with opened(store) as target:
        _, template = chosen_layout(target, options)
        resumed = _ResumedStore(target, identity, template)
        put = (_convert if trees else _copy)(resumed, parts, options, progress)
        if check:
            resumed.check()
        keys = root_keys_of(resumed)
    name = put.name if keys is None else keys.name
    return replace(put, name=name, kept_bytes=resumed.kept_bytes)


def _find_tree(path: Path, tree: str | None) -> tuple[str, str]:
    """Return name and kind (``"RNTuple"``, ``"TTree"``) of a file's tree."""
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
) -> Put:
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
        if len(sources) > 1 and any(column.first_element for column in first.schema.columns):
            expected = "fields that are there from the first entry on, to join files"
            raise ConfigurationError(f"ntuple in {parts[0][0]}", expected, "fields added later")
        writer = open_writer(store, first.header, options)
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
        return Put(first.schema.name, writer.entries, clusters, writer.nbytes, 0, converted=False)


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
) -> Put:
    name = parts[0][1].rpartition("/")[2]
    entries = 0
    with Sink(store, name, options) as sink:
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
    return Put(name, entries, 0, sink.nbytes, 0, converted=True)


class _ResumedStore(Store):
    """A store to which one put goes; what an earlier one stored is kept (``kept_bytes``).

    The put has objects of its own, below ``own_name``, and a journal of that name. Only a put of
    the same ``identity``, its files and options, goes on with them: it takes the journal over by
    a conditional write, and whoever had it is told when he writes to it next. Both write the
    same bytes under the same names, so nothing is damaged. Objects that are published already
    are written again in their places, which heals them.

    The journal is written when ``every_bytes`` have been stored; later, when a hundredth of all
    has, since it grows with the number of objects.
    """

    def __init__(
        self, store: Store, identity: str, template: str, every_bytes: int = _JOURNAL_BYTES
    ) -> None:
        self.uri = store.uri
        self.limit = store.limit
        self.root_keys = root_keys_of(store)
        self.kept_bytes = 0
        self._store = store
        self._template = template
        self._every_bytes = every_bytes
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._unsaved_bytes = 0
        self._total_bytes = 0
        self._stored: dict[str, tuple[int, str]] = {}
        self._known: dict[str, tuple[int, str]] = {}
        self._identity = identity
        self._owner = secrets.token_hex(8)
        self._journal: bytes | None = None
        self._is_published = False
        self._first = 0
        there = dict(store.list(prefix_of(template)))
        if template == ROOT_KEYS:
            # Names are ROOT's, so a put tells its objects from others by their numbers.
            self.own_name = _SHARED
            if not self._begin(there, must_be_same=False):
                raise self._taken_over()
        else:
            self._claim(there)

    def _claim(self, there: dict[str, int]) -> None:
        """Take over what a put of the same identity has left, or begin anew."""
        names = {own_name(name) for name in there}
        for name in sorted(names):
            self.own_name = name
            if name.startswith(f"put-{self._identity[:12]}-") and self._begin(there):
                self._is_published = self._published_name() == name
                return
        self.own_name = new_own_name(self._identity)
        if not self._begin({}):
            raise self._taken_over()

    def _begin(self, there: dict[str, int], *, must_be_same: bool = True) -> bool:
        """Take the journal, if nobody takes it at the same time, and none has given it up."""
        self._journal = self._store.content(self._journal_name)
        self._known = {}
        found = _parsed(self._journal)
        same = found.get("identity") == self._identity
        if found.get("withdrawn") or (found and must_be_same and not same):
            return False
        if same:
            self._first = found["first"]
            self._known = {
                name: (size, digest)
                for name, (size, digest) in found["objects"].items()
                if there.get(name) == size
            }
        elif self.own_name == _SHARED:
            self._first = first_free(self._store, self._template)
        return self._write_journal()

    @property
    def _journal_name(self) -> str:
        return JOURNALS + self.own_name

    def _write_journal(self, **marks: bool) -> bool:
        """Write the journal, unless somebody else has written it since."""
        with self._lock:
            objects = {**self._known, **self._stored}
        text = {
            "identity": self._identity,
            "owner": self._owner,
            "first": self._first,
            "objects": objects,
            **marks,
        }
        data = json.dumps(text).encode()
        if not self._store.put_anchor_if(self._journal_name, data, self._journal):
            return False
        self._journal = data
        return True

    def put(self, name: str, data: Buffer) -> None:
        """Store an object, unless it is there already."""
        view = memoryview(data).cast("B")
        mark = view.nbytes, xxhash.xxh3_128_hexdigest(view)
        there = self._known.get(name) == mark
        if not there:
            self._store.put(name, view)
        with self._lock:
            self._stored[name] = mark
            self.kept_bytes += view.nbytes if there else 0
            self._total_bytes += view.nbytes
            self._unsaved_bytes += 0 if there else view.nbytes
            due = self._unsaved_bytes >= max(self._every_bytes, self._total_bytes // _JOURNAL_PART)
            if due:
                self._unsaved_bytes = 0
        if due:
            self._save()

    def _save(self) -> None:
        with self._saving:
            if not self._write_journal() and self._published_name() != self.own_name:
                raise self._taken_over()

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store the anchor; the journal has done its work.

        Where another put has stored one, the objects of this one are removed.
        """
        if self._store.put_anchor_if(name, data, expected):
            self._store.delete([self._journal_name])
            return True
        if self._published_name() == self.own_name and not self._is_published:
            return True  # by one that took the journal over: it is the same ntuple
        self._withdraw()
        raise conflict(self.uri)

    def _withdraw(self) -> None:
        """Remove all objects, unless another put goes on with them or they were published."""
        if self.own_name == _SHARED or not self._write_journal(withdrawn=True):
            return
        names: list[str] = []
        if not self._is_published:
            template = own_template(self._template, self.own_name)
            names = [name for name, _ in self._store.list(prefix_of(template))]
        self._store.delete([*names, self._journal_name])

    def _published_name(self) -> str:
        """Return the name of the put whose ntuple is there now."""
        data = self._store.content("")
        try:
            return own_name(read_anchor(data, self.uri).template) if data is not None else ""
        except ObjectDamagedError:
            return ""

    def _taken_over(self) -> ObjectConflictError:
        problem = "another put of the same files has begun meanwhile, and goes on with this one"
        return ObjectConflictError(self.uri, "", problem)

    def get(self, name: str) -> bytes:
        return self._store.get(name)

    def begin(
        self, requests: Sequence[Request], buffer: NDArray[np.uint8] | None = None
    ) -> Pending:
        return self._store.begin(requests, buffer)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield objects, but none of the put that goes on."""
        for name, size in self._store.list(prefix):
            number = object_number(self._template, name)
            if number is None or number < self._first:
                yield name, size

    def delete(self, names: Sequence[str]) -> None:
        self._store.delete(names)

    def check(self) -> None:
        """Read back every object; ObjectDamagedError if one is not what was put."""
        for name, (_, digest) in self._stored.items():
            if xxhash.xxh3_128_hexdigest(self._store.get(name)) != digest:
                raise ObjectDamagedError(self.uri, name, "it is not what was put; put it again")


def _parsed(journal: bytes | None) -> dict[str, Any]:
    """Return the journal of a put that did not end; nothing if it is of no use."""
    try:
        found = json.loads(journal or b"")
        found["objects"] = {name: (size, mark) for name, (size, mark) in found["objects"].items()}
        return {**found, "identity": str(found["identity"]), "first": int(found["first"])}
    except (ValueError, KeyError, TypeError, AttributeError):
        # Damaged: nothing of what it says can be relied on, so all is sent again.
        return {}


def get_file(
    store: Store | str,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write an ntuple of objects to a ROOT file, without decompressing its pages.

    Parameters
    ----------
    store
        The store of the ntuple, or its URI.
    path
        The file; it gets this name when it is complete.
    overwrite
        Whether an existing file is replaced.
    progress
        Called with the number of finished entries.

    Returns
    -------
    int
        Number of entries.

    Raises
    ------
    ConfigurationError
        A file of that name exists.
    ObjectStoreError
        The store fails, or an object is missing or damaged.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise ConfigurationError("output", "a new file, or --overwrite", str(path))
    with opened(store) as source:
        metadata = load_metadata(source)
        with atomic_file(path) as part, uproot.recreate(part) as file:
            _fill(FileRNTuple(file, metadata.schema.name), source, metadata, progress)
    return metadata.entries


def _fill(
    target: FileRNTuple, store: Store, metadata: Metadata, progress: Callable[[int], None] | None
) -> None:
    """Write pages, envelopes and their places into a file."""

    def add_envelope(data: bytes) -> tuple[int, int, int]:
        stored = bytes(compressed(data, ENVELOPES))
        return target.add(stored, len(data)), len(stored), len(data)

    clusters = []
    for number, cluster in enumerate(metadata.clusters):
        columns = sealed_cluster(store, metadata, number)
        clusters.append(_placed(cluster, columns, target))
        if progress is not None:
            progress(cluster.entries)
    checksum = metadata.footer.header_checksum
    groups = []
    if clusters:
        offset, nbytes, length = add_envelope(pack_page_list(checksum, clusters))
        locator = Locator(IN_FILE, offset, nbytes)
        groups.append(ClusterGroup(0, metadata.entries, len(clusters), length, locator))
    footer = pack_footer(Footer(checksum, metadata.footer.extension, tuple(groups)))
    target.finish(metadata.anchor.version, add_envelope(metadata.header), add_envelope(footer))


def _placed(cluster: Cluster, columns: list[SealedColumn], target: FileRNTuple) -> Cluster:
    """Write a cluster's pages, each once, and return it with their places in the file."""
    waiting: dict[tuple[int, int], memoryview] = {}
    places: dict[tuple[int, int], int] = {}

    def flush() -> None:
        data = b"".join(waiting.values())
        place = target.add(data, len(data)) if waiting else 0
        for key, page in waiting.items():
            places[key] = place
            place += len(page)
        waiting.clear()

    waiting_bytes = 0
    for pages, column in zip(cluster.columns, columns, strict=True):
        for key, page in zip(_places(pages), column.pages, strict=True):
            view = memoryview(page.data)
            if key in places or key in waiting:
                continue
            if waiting_bytes + len(view) > _BLOB_BYTES:
                flush()
                waiting_bytes = 0
            waiting[key] = view
            waiting_bytes += len(view)
    flush()
    found = [
        replace(
            pages,
            objects=np.full(len(pages.objects), IN_FILE, np.int64),
            offsets=np.array([places[key] for key in _places(pages)], np.int64),
        )
        for pages in cluster.columns
    ]
    return Cluster(cluster.first_entry, cluster.entries, tuple(found))


def _places(pages: ColumnPages) -> list[tuple[int, int]]:
    return list(zip(pages.objects.tolist(), pages.offsets.tolist(), strict=True))
