"""Awkward contents made of a form: a record's fields when touched, buffers when used.

``ak.from_buffers`` makes several objects for each of some three thousand
buffers of a NanoAOD form, although a processor touches a hundred. What is
made here is equal to what it makes, field by field, later: the form is
projected to what the processor uses, without knowing it beforehand.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import awkward as ak
import numpy as np
from coffea.nanoevents import BaseSchema, NanoEventsFactory

from hepcache.formats.reader import Reader
from hepcache.formats.registry import open_source
from hepcache.formats.source import TreeRef
from hepcache.process.forms import SchemaForm
from hepcache.process.worker_state import worker_state
from hepcache.results.derived import DerivedColumns
from hepcache.settings import settings
from hepcache.telemetry import ReadLog
from hepcache.upstream.awkward import (
    IS_LAZY,
    UNKNOWN,
    index_to_dtype,
    lazy_record,
    made_at_once,
    made_of_buffers,
    virtual_buffer,
)
from hepcache.upstream.coffea import (
    Accessed,
    BaseSourceMapping,
    base_form,
    buffer_key,
    key_to_tuple,
    tuple_to_key,
)

Shape = Callable[[], tuple[int]]


class ChunkEvents:
    """The events of one chunk, and what was read for them.

    ``buffer_cache``: the user's own cache of buffers, or ``None``.
    ``preload``: names of the columns that the user wants read at once, or ``None``.
    ``derived``: derived columns of the chunk, or ``None`` where none are stored.
    ``accessed``: a coffea ``Accessed`` for every column that was loaded.
    """

    def __init__(
        self,
        form: SchemaForm,
        reader: Reader,
        start: int,
        stop: int,
        metadata: Mapping[str, Any],
        buffer_cache: MutableMapping[str, Any] | None,
        preload: frozenset[str] | None,
        derived: DerivedColumns | None = None,
    ) -> None:
        self.accessed: list[Accessed] = []
        self._form = form
        self._reader = reader
        self._start = start
        self._stop = stop
        self._preload = form.columns.intersection(preload or ())
        mapping = ReaderMapping(
            reader, start, stop, form.columns, self.accessed, buffer_cache, preload
        )
        partition = reader.ref.uuid, reader.ref.tree, f"{start}-{stop}"
        factory = EventsFactory(form, mapping, partition, metadata, derived)
        self.events = factory.events()

    def prefetch(self, columns: frozenset[str]) -> None:
        """Read columns that may be touched together, and those that the user wants read."""
        likely = self._form.columns & columns
        self._reader.prefetch(likely, self._start, self._stop, needed=self._preload)

    def count(self) -> frozenset[str]:
        """Count the columns of a chunk that is done in its log, and return those it touched."""
        self._reader.count(self._start, self._stop, self._preload)
        touched = frozenset(access.branch for access in self.accessed)
        # coffea's own way to a column notes it before it is read.
        return touched - self._reader.failed.keys()


class Contents:
    """Makes contents of forms, for one chunk.

    ``name``: returns a buffer's name, as ``ak.from_buffers`` asks for it.
    """

    def __init__(
        self,
        buffers: Mapping[str, Callable[[], Any]],
        name: Callable[..., str],
        keep: Callable[[str, str], bool],
    ) -> None:
        self._buffers = buffers
        self._name = name
        self._keep = keep

    def make(self, form: ak.forms.Form, length: int) -> ak.contents.Content:
        """Return the content of a form, of ``length`` entries."""
        return self._make(form, length, lambda: (length,))

    def make_record(
        self, form: ak.forms.RecordForm, length: int, parameters: Mapping[str, Any]
    ) -> ak.contents.RecordArray:
        """Return the record of a form, with parameters of its own, of ``length`` entries."""
        if not IS_LAZY:
            return made_at_once(form, length, parameters, self._buffers, self._name, self._keep)
        return lazy_record(
            form.fields,
            length,
            dict(parameters),
            lambda position: self.make(form.contents[position], length),
        )

    def _make(self, form: ak.forms.Form, length: Any, shape: Shape) -> ak.contents.Content:
        if isinstance(form, ak.forms.RecordForm) and not form.is_tuple:
            return lazy_record(
                form.fields,
                length,
                form.parameters,
                lambda position: self._make(form.contents[position], length, shape),
                length_generator=lambda: shape()[0],
            )
        if isinstance(form, ak.forms.ListOffsetForm):
            return self._lists(form, length, shape)
        if isinstance(form, ak.forms.NumpyForm) and form.inner_shape == ():
            dtype = ak.types.numpytype.primitive_to_dtype(form.primitive)
            data = self._buffer(form, "data", dtype, length, shape)
            return ak.contents.NumpyArray(data, parameters=form.parameters)
        return made_of_buffers(form, length, self._buffers, self._name, shape, self._keep)

    def _buffer(
        self, form: ak.forms.Form, attribute: str, dtype: Any, length: Any, shape: Shape
    ) -> Any:
        name = self._name(form_key=form.form_key, attribute=attribute, form=form)
        keep = self._keep(form.form_key, attribute)
        return virtual_buffer(self._buffers[name], name, dtype, length, shape, keep=keep)

    def _lists(
        self, form: ak.forms.ListOffsetForm, length: Any, shape: Shape
    ) -> ak.contents.Content:
        offsets = self._buffer(
            form, "offsets", index_to_dtype[form.offsets], length + 1, lambda: (shape()[0] + 1,)
        )
        content = self._make(form.content, UNKNOWN, partial(_items, offsets))
        index = ak.index.Index(offsets)
        return ak.contents.ListOffsetArray(index, content, parameters=form.parameters)


def _items(offsets: Any) -> tuple[int]:
    """Return the number of items of all lists."""
    # Indexing what isn't loaded goes through all of awkward's dispatch.
    loaded = offsets.materialize()
    return (int(loaded[-1]) if len(loaded) > 1 else 0,)


class ReaderMapping(BaseSourceMapping):
    """coffea's mapping of buffer names to buffers, fed by a Reader."""

    def __init__(
        self,
        reader: Reader,
        start: int,
        stop: int,
        columns: frozenset[str],
        access_log: list[Accessed] | None = None,
        buffer_cache: MutableMapping[str, Any] | None = None,
        preload: frozenset[str] | None = None,
    ) -> None:
        super().__init__(
            None,
            start,
            stop,
            cache={},
            access_log=access_log,
            virtual=True,
            buffer_cache=buffer_cache,
        )
        self._reader = reader
        self._columns = columns
        self._preload = preload

    @classmethod
    def _extract_base_form(cls, source: Any) -> dict[str, Any]:
        # coffea asks its own mappings for this; ours is made of a form that is known.
        return base_form(source, BaseSchema, {})

    @property
    def preloaded_arrays(self) -> dict[str, ak.Array] | None:
        """What the user wanted read at once, by column, as coffea's own mapping has it."""
        if self._preload is None:
            return None
        return {
            name: ak.Array(self._reader.array(name, self._start, self._stop))
            for name in sorted(self._preload & self._columns)
        }

    def opened_file(self) -> Any:
        """Return the file as uproot has it."""
        tree: Any = open_source(self._reader.ref).whole_tree
        return tree.file

    def key_root(self) -> str:
        """Return the prefix of this mapping's column sources."""
        return "ReaderMapping:"

    def _column_source(self, uuid: str, path_in_source: str) -> frozenset[str]:  # noqa: ARG002
        return self._columns

    def get_column_handle(
        self, columnsource: frozenset[str], name: str, allow_missing: bool
    ) -> str | None:
        """Return the column's name, or ``None`` where it may be missing and is."""
        return None if allow_missing and name not in columnsource else name

    def extract_column(
        self, columnhandle: str | None, start: int, stop: int, allow_missing: bool, **_: Any
    ) -> ak.Array:
        """Return a column as coffea's own mapping of ROOT files does."""
        if columnhandle is None:
            missing = ak.index.Index64(np.full(stop - start, -1, dtype=np.int64))
            nothing = ak.contents.NumpyArray(np.array([], dtype=bool))
            return ak.Array(ak.contents.IndexedOptionArray(missing, nothing))
        layout = self._reader.array(columnhandle, start, stop)
        if isinstance(layout, ak.contents.ListOffsetArray):
            layout = layout.to_ListOffsetArray64(True)
        if allow_missing:
            everything = ak.index.Index64(np.arange(stop - start, dtype=np.int64))
            layout = ak.contents.IndexedOptionArray(everything, layout)
        return ak.Array(layout)

    def __getitem__(self, key: str) -> Callable[[], Any]:
        direct = _direct(key.rpartition("/")[2]) if self._buffer_cache is None else None
        if direct is None:
            # Other buffers (cross-references, their offsets) take coffea's own way.
            load: Callable[[], Any] = super().__getitem__(key)
            return load
        return partial(self._load, key, *direct)

    def _load(self, key: str, name: str, kind: str) -> Any:
        read: Callable[[str, int, int], Any] = getattr(self._reader, kind)
        values = read(name, self._start, self._stop)
        if values is None:
            return super().__getitem__(key)()
        if self._access_log is not None:
            self._access_log.append(Accessed(branch=name, buffer_key=key))
        return values

    def __len__(self) -> int:
        return int(self._stop - self._start)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReaderMapping:
        # It only reads, so copies of arrays can share it.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Where it arrives it reads through that process's cache.
        ref = replace(self._reader.ref, store=None)
        chunk = ref, self._start, self._stop, self._columns
        return _mapping, (*chunk, self._buffer_cache, self._preload)

    def __iter__(self) -> Any:
        raise TypeError("the buffers of a chunk can't be listed, only asked for")


def _mapping(
    ref: TreeRef,
    start: int,
    stop: int,
    columns: frozenset[str],
    buffer_cache: MutableMapping[str, Any] | None,
    preload: frozenset[str] | None,
) -> ReaderMapping:
    cache = worker_state().cache_of(ref.path, ref.places)
    columns_cache = None if settings().cache_mode == "fscache" else cache
    reader = Reader(replace(ref, store=cache), columns_cache, open_source, ReadLog())
    return ReaderMapping(reader, start, stop, columns, None, buffer_cache, preload)


# What a buffer is made of a column, and which of the reader's methods makes it.
# The attribute stands inside the form key for offsets, and only for them.
_DIRECT = {
    ("!load",): "content",
    ("!load", "!content"): "content",
    ("!load", "!offsets"): "offsets",
    ("!load", "!counts2offsets", "!skip", "!offsets"): "running_totals",
}


@lru_cache(maxsize=16384)
def _direct(form_key: str) -> tuple[str, str] | None:
    """Return the column and the reader's method that make a buffer, if there is one."""
    (text,) = key_to_tuple(form_key)
    name, *steps = text.split(",")
    kind = _DIRECT.get(tuple(steps))
    return None if kind is None else (name, kind)


class LazyFile:
    """uproot's file, which is opened by the first use of anything in it."""

    def __init__(self, open_file: Callable[[], Any]) -> None:
        self._open = open_file

    @cached_property
    def _file(self) -> Any:
        return self._open()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._file, name)

    def __getitem__(self, key: Any) -> Any:
        return self._file[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __enter__(self) -> Any:
        return self._file.__enter__()

    def __exit__(self, *exception: object) -> None:
        self._file.__exit__(*exception)

    def __repr__(self) -> str:
        return repr(self._file) if "_file" in vars(self) else "<a ROOT file, not opened yet>"


class EventsFactory(NanoEventsFactory):
    """coffea's factory for the events of one chunk, made of a known form."""

    def __init__(
        self,
        form: SchemaForm,
        mapping: ReaderMapping,
        partition: tuple[str, str, str],
        metadata: Mapping[str, Any],
        derived: DerivedColumns | None = None,
    ) -> None:
        super().__init__(form.schema, mapping, tuple_to_key(partition), mode="virtual")
        parameters = form.form["parameters"]
        self._events: Callable[[], Any] = lambda: None
        self._layout: Callable[[], Any] = lambda: None
        self._partition = partition
        self._form, self._length = form, len(mapping)
        self._parameters = {
            **parameters,
            "metadata": {**metadata, **parameters.get("metadata", {})},
        }
        self.derived = derived
        self._buffer_key = buffer_key(partition)
        keeps = self.buffer_cache is None
        self._contents = Contents(
            mapping, self._buffer_key, lambda _, attribute: keeps or attribute != "data"
        )

    def events(self) -> ak.Array:
        """Return the events; a field is made when it is touched."""
        events = self._events()
        if events is None:
            record = self._form.record
            layout = self._contents.make_record(record, self._length, self._parameters)
            events = ak.Array(
                layout,
                behavior=self._schema.behavior(),
                attrs={
                    "@events_factory": self,
                    "@form": {**self._form.form, "parameters": self._parameters},
                    "@buffer_key": self._buffer_key,
                },
            )
            # Without itself: what holds itself is freed late.
            attrs = {name: kept for name, kept in events.attrs.items() if kept is not self}
            self._given = events.behavior, attrs
            self._events = weakref.ref(events)
            self._layout = weakref.ref(layout)
        return events

    def is_whole(self, events: Any) -> bool:
        """Tell whether events are all of the chunk's, to which nothing was added."""
        if events is not self._events() or events.layout is not self._layout():
            return False
        behavior, attrs = self._given
        return (
            events.behavior is behavior
            and events.attrs.keys() == {*attrs, "@events_factory"}
            and events.attrs["@events_factory"] is self
            and all(events.attrs[name] is value for name, value in attrs.items())
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """The chunk's metadata, as the events have them."""
        found: dict[str, Any] = self._parameters["metadata"]
        return found

    def anew(self, metadata: dict[str, Any]) -> ak.Array:
        """Return the chunk's events once more, with other metadata; columns are shared."""
        factory = EventsFactory(self._form, self._mapping, self._partition, {}, self.derived)
        factory._parameters["metadata"] = metadata
        return factory.events()

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies make events of their own, as coffea's do.
        metadata = self._parameters["metadata"]
        return EventsFactory, (self._form, self._mapping, self._partition, metadata)

    def __deepcopy__(self, memo: dict[int, Any]) -> EventsFactory:
        kind, values = self.__reduce__()
        made: EventsFactory = kind(*values)
        return made

    @property
    def file_handle(self) -> LazyFile:
        """The ROOT file, opened when it is read from: a chunk that is cached needs none."""
        return LazyFile(self._mapping.opened_file)
