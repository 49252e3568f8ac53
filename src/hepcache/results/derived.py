"""Derived columns: what a user's function computes of events once, and every later cycle reads.

A derived column is stored as columns are: per content of a file and entries, beside the columns
that it was computed from, under checksums. Its name in the cache is that of the function with a
digest of all that decides what the function returns.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from functools import partial, update_wrapper
from operator import itemgetter
from typing import Any, NoReturn

import awkward as ak
import numpy as np

from hepcache.cache import ColumnCache
from hepcache.cache.contents import segment_range
from hepcache.cache.disk.format import storable
from hepcache.cache.model import ColumnKey, Entry
from hepcache.errors import FingerprintError, ResultNotStoredError
from hepcache.fileset.segments import overlapping
from hepcache.results.fingerprint import digests_of_functions, fingerprint, registered_behaviors
from hepcache.results.opened_files import (
    OpenedFiles,
    content_digest,
    digest_since,
    opened_files,
    unrecorded,
)
from hepcache.telemetry import DerivedUse, ReadLog

__all__ = [
    "DERIVED",
    "ChunkMetadata",
    "DerivedColumn",
    "DerivedColumns",
    "columns_of",
    "derived",
    "is_derived",
]

DERIVED = "@"
"""Stands in a cached column's name between a function's name and its digest."""

_OTHER = re.compile(r"[^\w.]", re.ASCII)
_MOST_NAME = 80
_FORMAT = "4"
_CODE_DIGITS = 32
_MOST_CODES = 16
_MOST_CHANGED = 3
_BEHAVIORS = "registered behaviours"
# These differ between two chunks of one dataset, and between two names of one file.
_OF_CHUNK = frozenset({"filename", "entrystart", "entrystop"})
_OF_FILE = frozenset({"fileuuid", "treename"})

_STORED = re.compile(DERIVED + r"[0-9a-f]{64}", re.ASCII)

Range = tuple[int, int]
Note = Callable[[str, "DerivedColumn", tuple[Any, ...], Collection[str]], None]


def is_derived(name: str) -> bool:
    """Tell whether a name is that of a derived column, without its entries.

    >>> is_derived("good_jets@" + 64 * "0"), is_derived("nJet")
    (True, False)
    """
    return _STORED.fullmatch(name, max(len(name) - 65, 0)) is not None


class _Unstorable(Exception):  # noqa: N818 - an outcome: the result is computed and not stored
    """Why a result can't be stored."""


def _refuse(reason: str) -> NoReturn:
    raise _Unstorable(reason)


def derived(function: Callable[..., Any]) -> DerivedColumn:
    """Mark a function of events whose result is stored, and read in later cycles.

    Parameters
    ----------
    function
        Function of events that returns one entry per event: an awkward array or record array of
        any depth, or a NumPy array of shape ``(n_events,)`` or more. Entry *i* of the result must
        depend on event *i* only, because chunks of other sizes share it. The function's other
        arguments, and the object of a method, are part of the result's identity.

    Returns
    -------
    DerivedColumn
        Called like the function. It reads the result if the same code has stored it for these
        events (see :func:`hepcache.fingerprint`), and computes it otherwise.

    Notes
    -----
    Results are stored for the events of a chunk, as :class:`hepcache.Runner` passes them to a
    processor. For events that were filtered or changed before, or made otherwise, the
    function is computed each time; reports say so.

    Examples
    --------
    >>> import awkward as ak
    >>> @derived
    ... def leading(events, least=0.0):
    ...     return ak.max(events.pt, axis=1, initial=least, mask_identity=False)
    >>> leading(ak.Array({"pt": [[40.0, 30.0], []]}), least=5.0).tolist()
    [40.0, 5.0]
    """
    return DerivedColumn(function)


class DerivedColumn:
    """A function of events whose results are stored; :func:`hepcache.derived` makes it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else partial(self._call, (instance,))

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return what the function makes of events."""
        return self._call((), *arguments, **options)

    def _call(self, bound: tuple[Any, ...], *arguments: Any, **options: Any) -> Any:
        events = arguments[0] if arguments else None
        columns = columns_of(events)
        if columns is None:
            return self.function(*bound, *arguments, **options)
        return columns.get(self, (bound, arguments[1:], options), events)

    def computed(self, given: tuple[Any, ...], events: Any) -> Any:
        """Call the function itself."""
        bound, arguments, options = given
        return self.function(*bound, events, *arguments, **options)

    @property
    def label(self) -> str:
        """The function's name, as reports and cached columns have it."""
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return _OTHER.sub("_", str(name).replace("<locals>.", ""))[-_MOST_NAME:]

    def __repr__(self) -> str:
        return f"<derived column {self.label}>"


def columns_of(events: Any) -> DerivedColumns | None:
    """Return the derived columns of the chunk that events are of; ``None`` where none are stored.

    Parameters
    ----------
    events
        What a processor was given, or anything else.
    """
    attrs = getattr(events, "attrs", None)
    factory = attrs.get("@events_factory") if isinstance(attrs, Mapping) else None
    columns = getattr(factory, "derived", None)
    return columns if isinstance(columns, DerivedColumns) else None


class ChunkMetadata(dict[str, Any]):
    """A chunk's metadata that remembers what was asked of it, and whether it was changed.

    Parameters
    ----------
    metadata
        The metadata. Where it remembers itself, it is told what is asked of this: who computes
        something of what another computes depends on the same.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        # Of a dictionary that remembers, this asks nothing.
        super().__init__(dict.items(metadata) if isinstance(metadata, dict) else metadata)
        self.asked: set[str] = set()
        self.changed = False
        self._outer = metadata if isinstance(metadata, ChunkMetadata) else None

    def note(self, *names: str) -> None:
        """Remember names that something depends on."""
        self.asked.update(names)
        if self._outer is not None:
            self._outer.note(*names)

    def __getitem__(self, name: str) -> Any:
        self.note(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.note(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, and remember its name."""
        self.note(name)
        return super().get(name, default)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)


def _whole(name: str, *, changes: bool = False) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(dict, name)

    def method(self: ChunkMetadata, *arguments: Any, **options: Any) -> Any:
        self.note(*dict.keys(self))
        self.changed = self.changed or changes
        return plain(self, *arguments, **options)

    return update_wrapper(method, plain)


for _name in ("__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__", "__reversed__"):
    setattr(ChunkMetadata, _name, _whole(_name))
for _name in ("__ror__", "copy", "items", "keys", "values"):
    setattr(ChunkMetadata, _name, _whole(_name))
for _name in ("__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault"):
    setattr(ChunkMetadata, _name, _whole(_name, changes=True))
ChunkMetadata.update = _whole("update", changes=True)  # type: ignore[method-assign]


class ChunkFiles:
    """The files that are opened while a chunk is processed, and were before in this process.

    Parameters
    ----------
    ignored
        Tells the files that hepcache itself opens for the chunk.
    opened
        What is opened from the chunk's beginning on.
    note
        Takes digests of files; returns why nothing can be known by them any more, or ``None``.
    known
        Digests of all files that were noted in this process.
    """

    def __init__(
        self,
        ignored: Callable[[str], bool],
        opened: OpenedFiles,
        note: Callable[[Mapping[str, str | None]], str | None],
        known: Mapping[str, str | None],
    ) -> None:
        self.ignored = ignored
        self._opened = opened
        self._note = note
        self._known = known
        self._began_ns = time.time_ns()

    def digests(self) -> dict[str, str | None]:
        """Return digests of what was opened so far; it may be kept in modules.

        Raises
        ------
        ResultNotStoredError
            One has changed since it was opened first.
        """
        paths = self._opened.read_until_now(self.ignored)
        reason = self._note({path: digest_since(path, self._began_ns) for path in paths})
        if reason is not None:
            raise ResultNotStoredError(reason)
        return dict(self._known)

    def unchanged(self, stored: Mapping[str, str | None]) -> bool:
        """Tell whether files are what they were when something was computed of them."""
        if any(content_digest(path) != digest for path, digest in stored.items()):
            return False
        return not stored or self._note(stored) is None


class DerivedColumns:
    """Derived columns of one chunk.

    Parameters
    ----------
    cache
        The user's own cache on this host; never a group's, where another's code could speak.
    key
        Key of any column of the file and tree; entries and name are replaced.
    boundaries
        Boundaries of the file's segments, as in :class:`hepcache.formats.source.TreeRef`.
    entries
        The chunk's first entry, and the one behind its last.
    form
        What the events look like, beside the file's content: schema and options.
    metadata
        The chunk's metadata, as the processor sees them.
    log
        Where it is counted what was read and what was computed.
    files
        The files that are opened while the chunk is processed.
    note
        Called with the name of each result that is stored, its function, what that was given
        beside events, and the paths of the files that were read for it.
    """

    def __init__(
        self,
        *,
        cache: ColumnCache,
        key: ColumnKey,
        boundaries: Sequence[int],
        entries: Range,
        form: Any,
        metadata: Mapping[str, Any],
        log: ReadLog,
        files: ChunkFiles,
        note: Note | None = None,
    ) -> None:
        self._cache = cache
        self._key = key
        self._start, self._stop = entries
        self._segments = overlapping(boundaries, *entries)
        self._form = form
        self._metadata = metadata
        self.log = log
        self._files = files
        self._note = note
        self._needed: Collection[str] = ()
        self._taken_s = 0.0  # by derived columns that another computes from
        self._missed: set[str] = set()
        self._known: dict[str, dict[str, ColumnKey]] = {}

    def get(self, column: DerivedColumn, given: tuple[Any, ...], events: Any) -> Any:
        """Return what a function makes of the chunk's events.

        Parameters
        ----------
        column
            The function.
        given
            The object of a method in a tuple, other arguments, and keyword arguments.
        events
            What it was called with.
        """
        use = self.log.derived.setdefault(column.label, DerivedUse())
        before_s, self._taken_s = self._taken_s, 0.0
        began, loaded_s = time.perf_counter(), self.log.loading_s
        computed = use.computed
        try:
            return self._get(column, given, events, use)
        finally:
            took_s = time.perf_counter() - began - (self.log.loading_s - loaded_s)
            own_s = max(took_s - self._taken_s, 0.0)
            if use.computed > computed:
                use.seconds += own_s
            else:
                use.read_s += own_s
            self._taken_s = before_s + took_s

    def make(
        self, column: DerivedColumn, given: tuple[Any, ...], events: Any, needed: Collection[str]
    ) -> None:
        """Store what a function makes of the chunk's events, as a run's processor had it.

        Parameters
        ----------
        column, given, events
            As for :meth:`get`.
        needed
            Paths of the files that the run had read before. If one isn't read here, the result
            is not stored: what the processor kept of it is missing.
        """
        self._needed = needed
        try:
            self.get(column, given, events)
        finally:
            self._needed = ()

    def _get(
        self, column: DerivedColumn, given: tuple[Any, ...], events: Any, use: DerivedUse
    ) -> Any:
        factory = events.attrs["@events_factory"]
        names: list[str] = []
        try:
            if not factory.is_whole(events):
                _refuse("its events were filtered or changed before")
            metadata = factory.metadata
            self._missed = set()
            for name in self._names(column, given, metadata):
                names.append(name)
                parts = self._stored(name)
                if parts is not None:
                    found = self._joined(parts, events)
                    use.read += 1
                    self.log.derived_columns.add(name)
                    use.nbytes += sum(part.nbytes for part in parts)
                    if isinstance(metadata, ChunkMetadata):
                        metadata.note(*(name for part in parts for name in part.facts["asked"]))
                    opened = {path for part in parts for path in part.facts["opened"]}
                    self._noted(name, column, given, opened)
                    return found
        except (_Unstorable, FingerprintError) as error:
            names = []
            use.not_stored(str(error))
        except Exception as error:
            # Whatever is wrong with what is stored, the function can be computed.
            names = []
            use.not_stored(f"{type(error).__name__}: {error}")
        use.computed += 1
        if not names:
            return _read_only(column.computed(given, events))
        use.count(self._cause(column, names))
        return _read_only(self._computed(column, given, events, names, use))

    def _cause(self, column: DerivedColumn, names: Sequence[str]) -> str:
        """Return why a result has to be computed that could be stored."""
        if self._missed:
            return min(self._missed)
        label, _, digest = names[0].partition(DERIVED)
        if label not in self._known:
            # Before this chunk stores more: of one function there are many, by its arguments.
            beginning = label + DERIVED
            keys = [
                self._part_key("", start, stop)._replace(column=name)
                for start, stop in self._ranges()
                for name in sorted(self._cache.columns_of(self._part_key("", start, stop)))
                if name.startswith(beginning) and self._overlaps(name.rpartition(":")[2])
            ]
            self._known[label] = {
                key.column.removeprefix(beginning)[:_CODE_DIGITS]: key for key in keys
            }
        codes = self._known[label]
        if not codes or digest[:_CODE_DIGITS] in codes:
            return "new"
        try:
            changed = self._changed(column, list(codes.values()))
        except Exception:
            changed = ""  # the function can be computed without
        return f"code changed ({changed})" if changed else "code changed"

    def _changed(self, column: DerivedColumn, others: Sequence[ColumnKey]) -> str:
        """Return the names of what is another than when something was stored last."""
        found = [
            (known.stored_ns, json.loads(known.meta).get("functions", {}))
            for key in others[-_MOST_CODES:]
            if (known := self._cache.peek(key)) is not None
        ]
        before: dict[str, str] = max(found, key=itemgetter(0))[1] if found else {}
        now = self._functions(column)
        names = [name for name in now if name in before and now[name] != before[name]]
        names = names or sorted(now.keys() ^ before.keys() if before else ())
        more = len(names) - _MOST_CHANGED
        return ", ".join(names[:_MOST_CHANGED]) + (f" and {more} more" if more > 0 else "")

    def _functions(self, column: DerivedColumn) -> dict[str, str]:
        """Return digests of all that :meth:`_names` knows a function's code by."""
        with unrecorded():
            registered = registered_behaviors()
            behaviors = {_BEHAVIORS: fingerprint(registered)} if registered else {}
            return digests_of_functions(column.function) | behaviors

    def _overlaps(self, entries: str) -> bool:
        start, stop = segment_range(entries) or (0, 0)
        return start < self._stop and self._start < stop

    def _names(
        self, column: DerivedColumn, given: tuple[Any, ...], metadata: dict[str, Any]
    ) -> Iterator[str]:
        """Yield the result's names: where no metadata were asked for, and where some were."""
        now = dict(dict.items(metadata))
        of_chunk = {name: now.pop(name, None) for name in sorted(_OF_CHUNK | _OF_FILE)}
        if any(self._metadata.get(name) != value for name, value in of_chunk.items()):
            _refuse("the chunk's metadata were changed before")
        entries = self._entries_of(given)
        with unrecorded():
            registered = registered_behaviors()
            behaviors = fingerprint(registered) if registered else ""
            code = _digest(fingerprint(column.function), behaviors, _FORMAT)
            arguments = fingerprint((given, self._form, entries))
        yield f"{column.label}{DERIVED}{code}{_digest(arguments)}"
        # Most ask for none, and are found before this is needed.
        with unrecorded():
            of_metadata = fingerprint(now)
        yield f"{column.label}{DERIVED}{code}{_digest(arguments, of_metadata)}"

    def _entries_of(self, given: tuple[Any, ...]) -> list[Range]:
        """Return the chunk's entries for each argument that has one entry per event."""
        _, positional, options = given
        return [
            (self._start, self._stop)
            for argument in (*positional, *options.values())
            # What belongs to these events, entry by entry, belongs to no others.
            if isinstance(argument, Sized) and len(argument) == self._stop - self._start
        ]

    def _noted(
        self, name: str, column: DerivedColumn, given: tuple[Any, ...], files: Collection[str]
    ) -> None:
        if self._note is not None and not self._entries_of(given):
            with unrecorded():
                self._note(name, column, given, list(files))

    def _computed(
        self,
        column: DerivedColumn,
        given: tuple[Any, ...],
        events: Any,
        names: list[str],
        use: DerivedUse,
    ) -> Any:
        began, loaded_s = time.perf_counter(), self.log.loading_s
        factory = events.attrs["@events_factory"]
        watched = ChunkMetadata(factory.metadata)
        own = factory.anew(watched)
        own_factory = own.attrs["@events_factory"]
        with opened_files(self._files.ignored) as opened:
            found = column.computed(given, own)
        # What it has read, and what others have computed for it, is stored by itself.
        took_s = time.perf_counter() - began - (self.log.loading_s - loaded_s) - self._taken_s
        changed = watched.changed or not own_factory.is_whole(own)
        if changed:
            # The function may do so, and who called it goes on with what it has made of them.
            attrs = {**own.attrs, "@events_factory": factory}
            events.layout, events.behavior, events.attrs = own.layout, own.behavior, attrs
        asked = set(watched.asked)
        try:
            if changed:
                _refuse("it changes its events or their metadata")
            if isinstance(found, ak.Array) and found.attrs:
                if found.attrs.keys() - events.attrs.keys():
                    _refuse("it has attributes that its events have not")
                # Behaviours find other collections by the chunk's own events.
                found = ak.Array(found.layout, behavior=found.behavior, attrs=events.attrs)
            if opened.written:
                _refuse(f"it writes files, {min(opened.written)} for one")
            if list(self._names(column, given, factory.metadata)) != names:
                _refuse("something that it uses changed while it was computed")
            files = self._files.digests()
            if missing := set(self._needed) - files.keys():
                _refuse(f"the processor had read {min(missing)} before, and nobody has here")
            if asked & _OF_CHUNK:
                names_asked = ", ".join(sorted(asked & _OF_CHUNK))
                _refuse(f"it asks for {names_asked} of the chunk's metadata")
            name = names[1] if asked - _OF_FILE else names[0]
            functions = self._functions(column)
            self.log.derived_columns.add(name)
            use.stored_bytes += self._store(
                name, found, events, files, sorted(asked), functions, took_s
            )
            self._noted(name, column, given, files)
        except (_Unstorable, ResultNotStoredError) as error:
            use.not_stored(str(error))
        except Exception as error:
            # What the user's function has made is right, whatever else can't be done with it.
            use.not_stored(f"{type(error).__name__}: {error}")
        return found

    def _store(
        self,
        name: str,
        found: Any,
        events: Any,
        opened: Mapping[str, str | None],
        asked: Sequence[str],
        functions: Mapping[str, str],
        took_s: float,
    ) -> int:
        """Store a result; return its decoded bytes."""
        length = self._stop - self._start
        whole = _as_array(found, length)
        facts = {
            "numpy": isinstance(found, np.ndarray),
            "writeable": isinstance(found, np.ndarray) and found.flags.writeable,
            "behavior": _has_behavior(whole, events),
            "attrs": bool(whole.attrs),
            "opened": dict(opened),
            "asked": asked,
            "seconds_per_entry": max(took_s, 0.0) / max(length, 1),
            "functions": functions,
        }
        nbytes = 0
        for start, stop in self._ranges():
            part = whole.layout[start - self._start : stop - self._start]
            made = {self._part_key(name, start, stop): _to_entry(part, facts)}
            # It is written behind, and by one of all that have computed it at once.
            self._cache.fetch(made, partial(_already, made))
            nbytes += sum(entry.nbytes for entry in made.values())
        return nbytes

    def _ranges(self) -> list[Range]:
        """Return the chunk's part of each of its segments."""
        return [(max(self._start, start), min(self._stop, stop)) for start, stop in self._segments]

    def _part_key(self, name: str, start: int, stop: int) -> ColumnKey:
        (segment,) = [found for found in self._segments if found[0] <= start and stop <= found[1]]
        return self._key._replace(
            start=segment[0], stop=segment[1], column=f"{name}:{start}-{stop}"
        )

    def _stored(self, name: str) -> list[_Part] | None:
        """Return stored parts that cover the chunk, in order; ``None`` where some are missing."""
        found: list[_Part] = []
        for start, stop in self._ranges():
            exact = self._part(name, start, stop)
            parts = [exact] if exact is not None else self._covering(name, start, stop)
            if parts is None:
                return None
            found += parts
        # Where types depend on the chunk, parts can't be put together as it would make them.
        return found if len({part.type_text for part in found}) == 1 else None

    def _covering(self, name: str, start: int, stop: int) -> list[_Part] | None:
        """Return stored parts that cover a range together, which other chunks have stored."""
        segment = self._part_key(name, start, stop)
        prefix = f"{name}:"
        stored = [
            entries
            for column in self._cache.columns_of(segment)
            if column.startswith(prefix)
            and (entries := segment_range(column.removeprefix(prefix))) is not None
        ]
        found, at = [], start
        while at < stop:
            # Of those that hold the next entry, the one that reaches farthest.
            reaching = [entries for entries in stored if entries[0] <= at < entries[1]]
            if not reaching:
                return None
            farthest = max(reaching, key=lambda entries: entries[1])
            part = self._part(name, *farthest)
            if part is None:
                stored.remove(farthest)
                continue
            found.append(part.between(at, min(stop, farthest[1])))
            at = farthest[1]
        return found

    def _part(self, name: str, start: int, stop: int) -> _Part | None:
        key = self._part_key(name, start, stop)
        entry, cause = self._cache.get(key)
        if entry is None:
            self._missed |= {cause} - {"miss"}
            return None
        facts = json.loads(entry.meta)
        if not self._files.unchanged(facts["opened"]):
            self._cache.discard(key)  # or it would stay in the place of what is computed now
            self._missed.add("file changed")
            return None
        return _Part(facts, entry, start, stop, 0, stop - start)

    def _joined(self, parts: Sequence[_Part], events: Any) -> Any:
        layouts = [part.layout() for part in parts]
        layout = layouts[0] if len(layouts) == 1 else ak.concatenate(layouts, highlevel=False)
        if layout.length != self._stop - self._start:
            raise ValueError(f"what is stored has {layout.length} entries")
        facts = parts[0].facts
        if facts["numpy"]:
            array = np.array(ak.to_numpy(layout))
            array.flags.writeable = facts["writeable"]
            return array
        found = ak.Array(
            layout,
            behavior=events.behavior if facts["behavior"] else None,
            attrs=events.attrs if facts["attrs"] else None,
        )
        # The buffers of a single part are read-only as they come from the cache.
        return found if len(layouts) == 1 else _read_only(found)


class _Part:
    """A stored part of a derived column, or some of its entries."""

    def __init__(
        self, facts: Mapping[str, Any], entry: Entry, start: int, stop: int, low: int, high: int
    ) -> None:
        self.facts = facts
        self._entry = entry
        self._start, self._stop = start, stop
        self._low, self._high = low, high

    @property
    def nbytes(self) -> int:
        """Decoded bytes of what is used of it, if all entries are of one size."""
        entries = int(self.facts["length"])
        return self._entry.nbytes * (self._high - self._low) // max(entries, 1)

    @property
    def type_text(self) -> str:
        """What tells its type from others."""
        names = ("numpy", "writeable", "behavior", "attrs", "form")
        return json.dumps([self.facts[name] for name in names])

    def between(self, start: int, stop: int) -> _Part:
        """Return the entries of a range of the file's."""
        low, high = max(start, self._start), min(stop, self._stop)
        return _Part(
            self.facts, self._entry, self._start, self._stop, low - self._start, high - self._start
        )

    def layout(self) -> ak.contents.Content:
        """Return the entries; nothing is copied."""
        container = dict(zip(self.facts["keys"], self._entry.buffers, strict=True))
        form = ak.forms.from_dict(self.facts["form"])
        whole = ak.from_buffers(form, self.facts["length"], container, highlevel=False)
        return whole[self._low : self._high]


def _read_only(found: Any) -> Any:
    """Return a result whose numbers can't be written to: not when read, so not when computed."""
    if not isinstance(found, ak.Array) or found.layout.purelist_parameter("metadata"):
        return found  # events have many fields, and are never stored

    def without_writing(layout: ak.contents.Content, **_: Any) -> ak.contents.Content | None:
        if not isinstance(layout, ak.contents.NumpyArray) or not layout.is_all_materialized:
            return None  # what is not read yet comes from a column, which is read-only
        data = ak.materialize(layout, highlevel=False).data.view()
        data.flags.writeable = False
        return ak.contents.NumpyArray(data, parameters=layout.parameters)

    return ak.transform(without_writing, found, return_value="original")


def _already(made: Mapping[ColumnKey, Entry], _: Sequence[ColumnKey]) -> dict[ColumnKey, Entry]:
    return dict(made)


def _to_entry(layout: ak.contents.Content, facts: Mapping[str, Any]) -> Entry:
    """Return what the cache keeps: facts and form as JSON, plain buffers; nothing is pickled."""
    packed = ak.to_packed(layout, highlevel=False)
    form, length, container = ak.to_buffers(packed)
    # Copies, because they are written behind while the user has the arrays.
    buffers = tuple(np.array(buffer, order="C") for buffer in container.values())
    seconds = facts["seconds_per_entry"] * length
    for buffer in buffers:
        if not storable(buffer):
            raise _Unstorable(f"numbers of type {buffer.dtype} have no place in the cache")
    described = form.to_dict()
    if _holds_metadata(described):
        _refuse("it returns events, with the chunk's metadata; return some of their fields")
    try:
        meta = json.dumps(
            {**facts, "length": length, "form": described, "keys": list(container)},
            separators=(",", ":"),
        )
        same = ak.forms.from_dict(json.loads(meta)["form"])
    except (TypeError, ValueError) as error:
        raise _Unstorable(f"its type can't be written down: {error}") from error
    if same != form:
        raise _Unstorable("its type can't be written down as it is")
    return Entry(meta.encode(), buffers, seconds=seconds)


def _holds_metadata(described: Any) -> bool:
    """Tell whether a form, or a part of it, has a chunk's metadata as a parameter."""
    if isinstance(described, ChunkMetadata):
        return True
    if isinstance(described, dict):
        return any(map(_holds_metadata, described.values()))
    return isinstance(described, list) and any(map(_holds_metadata, described))


def _as_array(found: Any, length: int) -> ak.Array:
    """Return a result as an awkward array of one entry per event."""
    if type(found) is not np.ndarray and not isinstance(found, ak.Array):
        raise _Unstorable(f"it returned a {type(found).__name__}, which is no array of events")
    if isinstance(found, np.ndarray):
        dtype = found.dtype
        if dtype.hasobject or dtype.names or not dtype.isnative or not found.ndim:
            raise _Unstorable(f"it returned a NumPy array of {found.dtype}")
        found = ak.Array(ak.contents.NumpyArray(np.ascontiguousarray(found)))
    if len(found) != length:
        raise _Unstorable(f"it returned {len(found)} entries for {length} events")
    return found


def _has_behavior(found: ak.Array, events: Any) -> bool:
    """Tell whether a result has the behaviours of its events, or none of its own."""
    if not found.behavior:
        return False
    known = events.behavior or {}
    if any(known.get(name) is not value for name, value in found.behavior.items()):
        raise _Unstorable("it has behaviours that its events have not")
    return True


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
