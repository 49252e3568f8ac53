"""NanoEvents whose buffers come from a Reader."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any

import awkward as ak
import numpy as np
from coffea.nanoevents import BaseSchema, NanoEventsFactory

from hepcache.columns import Reader, open_source
from hepcache.process.contents import Contents
from hepcache.process.forms import SchemaForm
from hepcache.process.upstream import (
    Accessed,
    BaseSourceMapping,
    base_form,
    buffer_key,
    key_to_tuple,
    lazy_record,
    tuple_to_key,
)

__all__ = ["EventsFactory", "ReaderMapping"]


class ReaderMapping(BaseSourceMapping):
    """coffea's mapping of buffer names to buffers, fed by a Reader.

    Parameters
    ----------
    reader
        Reads the columns of one tree.
    start, stop
        Entry range of the chunk.
    columns
        Names of the tree's columns.
    access_log
        Receives a coffea ``Accessed`` for every column that is loaded.
    buffer_cache
        A mapping of the user's own, asked first, as in coffea.
    """

    def __init__(
        self,
        reader: Reader,
        start: int,
        stop: int,
        columns: frozenset[str],
        access_log: list[Accessed] | None = None,
        buffer_cache: MutableMapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            None, start, stop, cache={}, access_log=access_log, virtual=True,
            buffer_cache=buffer_cache,
        )  # fmt: skip
        self._reader = reader
        self._columns = columns

    @classmethod
    def _extract_base_form(cls, source: Any) -> dict[str, Any]:
        # coffea asks its own mappings for this; ours is made of a form that is known.
        return base_form(source, BaseSchema, {})

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
        self,
        columnhandle: str | None,
        start: int,
        stop: int,
        allow_missing: bool,
        **_: Any,
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

    def __iter__(self) -> Any:
        raise TypeError("the buffers of a chunk can't be listed, only asked for")


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


class EventsFactory(NanoEventsFactory):
    """coffea's factory for the events of one chunk, made of a known form.

    Parameters
    ----------
    form
        What the schema makes of the tree's branch list.
    mapping
        Gives the buffers.
    partition
        File UUID, tree and entry range.
    metadata
        The chunk's metadata.
    """

    def __init__(
        self,
        form: SchemaForm,
        mapping: ReaderMapping,
        partition: tuple[str, str, str],
        metadata: Mapping[str, Any],
    ) -> None:
        super().__init__(form.schema, mapping, tuple_to_key(partition), mode="virtual")
        parameters = form.form["parameters"]
        self._events: Callable[[], Any] = lambda: None
        self._form, self._length = form, len(mapping)
        self._parameters = {
            **parameters,
            "metadata": {**metadata, **parameters.get("metadata", {})},
        }
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
            layout = lazy_record(record.fields, self._length, self._parameters, self._field)
            events = ak.Array(
                layout,
                behavior=self._schema.behavior(),
                attrs={
                    "@events_factory": self,
                    "@form": {**self._form.form, "parameters": self._parameters},
                    "@buffer_key": self._buffer_key,
                },
            )
            self._events = weakref.ref(events)
        return events

    @property
    def file_handle(self) -> Any:
        """The ROOT file, opened now: a chunk that is cached needs none."""
        return self._mapping.opened_file()

    def _field(self, position: int) -> ak.contents.Content:
        return self._contents.make(self._form.record.contents[position], self._length)
