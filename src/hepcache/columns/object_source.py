"""Columns of an ntuple, read by pages: out of an object store, or out of a ROOT file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from hepcache.columns.column import Column, Counted, Flat, Nested
from hepcache.columns.source import TreeRef
from hepcache.columns.transport import Range
from hepcache.errors import ObjectStoreError, OriginError, UnknownColumnError
from hepcache.fileset import look
from hepcache.fileset.freshness import storage_options
from hepcache.objectstore.ntuple import NTuple, Reading
from hepcache.objectstore.store import Request, Store, open_store
from hepcache.telemetry import ReadLog

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ObjectSource", "as_column", "counters_of"]


class _Counting:
    """A store that counts what is read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.requested_bytes = self.read_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        wanted = sum(request.length for request in requests)
        with self._lock:
            self.requested_bytes += wanted
        found = await self._store.read(requests)
        with self._lock:
            self.read_bytes += wanted
        return found


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Columns that are fetched before they are asked for."""

    names: frozenset[str]
    start: int
    stop: int
    future: Reading | None = None


class ObjectSource:
    """One ntuple in an object store.

    Parameters
    ----------
    ref
        The ntuple, as the catalogue knew it.

    Raises
    ------
    OriginError
        The store can't be reached, or holds another ntuple than the catalogue knew.
    """

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._reported = 0, 0
        self._numbers = count(1)
        self._ahead: dict[int, _Ahead] = {}
        options = storage_options(ref.options)
        self._store: Any = _Counting(_told(ref, lambda: open_store(ref.path, **options)))
        try:
            self.ntuple = _told(ref, lambda: NTuple(self._store))
            self._check(options)
        except BaseException:
            self._store.close()
            raise
        self._counters = counters_of(self.ntuple)

    def _check(self, options: dict[str, Any]) -> None:
        ref, metadata = self.ref, self.ntuple.metadata
        found, expected = (metadata.uuid, metadata.entries), (ref.uuid, ref.boundaries[-1])
        if ref.validator and look(ref.path, options).validator != ref.validator:
            found = (f"{found[0]}, written again", found[1])
        if found != expected:
            raise OriginError(
                ref.path,
                f"the ntuple was replaced while it was being analysed (UUID and entries were "
                f"{expected}, now {found}); run again to take up the new one",
            )

    @property
    def tree(self) -> Any:
        """The ntuple as uproot describes it; it tells of fields, but can't be read."""
        return self.ntuple.metadata.schema.model

    whole_tree = tree

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            layouts = _told(self.ref, lambda: self._layouts(names, start, stop))
            # Fetching and decoding overlap; what one has to wait for is both.
            log.read_s += time.perf_counter() - began
            self.account(log)
            log.used_bytes += self.ntuple.stored_bytes(names, start, stop)
            return {name: as_column(layouts[name], self.counter(name)) for name in names}

    def _layouts(
        self, names: Sequence[str], start: int, stop: int
    ) -> dict[str, ak.contents.Content]:
        found: dict[str, ak.contents.Content] = {}
        for one in self._ahead.values():
            if one.future is not None and (one.start, one.stop) == (start, stop):
                there = one.names.intersection(names).difference(found)
                if there:
                    arrays = one.future.result()
                    found |= {name: arrays[name] for name in there}
        missing = [name for name in names if name not in found]
        if missing:
            found |= self.ntuple.layouts(missing, start, stop)
        return found

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        self._form(name)
        return self._counters.get(name)

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        try:
            self._form(name)
        except UnknownColumnError:
            return False
        return True

    def _form(self, name: str) -> Any:
        try:
            return self.ntuple.form(name)
        except UnknownColumnError as error:
            raise UnknownColumnError(name, self.ref.path, error.near) from None

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return a token for what :meth:`read` will need, and its bytes."""
        if not names:
            return []
        with self._turn:
            number = next(self._numbers)
            self._ahead[number] = _Ahead(frozenset(names), start, stop)
            return [(number, self.ntuple.stored_bytes(names, start, stop))]

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch what will be read."""
        with self._turn:
            for number, _ in ranges:
                one = self._ahead.get(number)
                if one is not None and one.future is None:
                    future = self.ntuple.begin(sorted(one.names), one.start, one.stop)
                    self._ahead[number] = _Ahead(one.names, one.start, one.stop, future)

    def await_few(self) -> None:
        """Return when what was expected has come."""
        with self._turn:
            ahead = [one.future for one in self._ahead.values()]
            coming = [one.columns for one in ahead if one is not None]
        wait(coming)

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop what was expected."""
        with self._turn:
            for number, _ in ranges:
                one = self._ahead.pop(number, None)
                if one is not None and one.future is not None:
                    one.future.cancel()

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the store since the last call."""
        requested, came = self._store.requested_bytes, self._store.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def counters_of(ntuple: NTuple) -> dict[str, str]:
    """Return the fields that are lists of numbers, and the field that counts each one's items.

    ROOT's NanoAOD has such a field for each collection: a cardinality, which
    is a view of the offsets that the lists share.
    """
    forms: dict[str, Any] = {}
    for name in ntuple.names:
        with suppress(ObjectStoreError):  # of a kind that only those miss who ask for it
            forms[name] = ntuple.form(name)[0]
    cardinalities = {
        form.form_key.removesuffix("-cardinality"): name
        for name, form in forms.items()
        if (form.form_key or "").endswith("-cardinality")
    }
    return {
        name: cardinalities[form.form_key]
        for name, form in forms.items()
        if isinstance(form, ak.forms.ListOffsetForm)
        and isinstance(form.content, ak.forms.NumpyForm)
        and not form.parameters
        and form.form_key in cardinalities
    }


def as_column(layout: ak.contents.Content, counter: str | None) -> Column:
    """Return a layout as the cache keeps it."""
    if counter is not None and isinstance(layout, ak.contents.ListOffsetArray):
        low, high = layout.offsets[0], layout.offsets[-1]
        return Counted(int(layout.length), np.asarray(layout.content.data[low:high]), counter)
    plain = isinstance(layout, ak.contents.NumpyArray) and layout.data.ndim == 1
    return Flat(layout.data) if plain and not layout.parameters else Nested(layout)


def _told(ref: TreeRef, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except ObjectStoreError as error:
        raise OriginError(ref.path, str(error)) from error
