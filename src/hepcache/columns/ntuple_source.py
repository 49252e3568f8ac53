"""Columns of an ntuple, read by pages, wherever these are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import awkward as ak

from hepcache.columns.column import Column, from_layout
from hepcache.columns.source import TreeRef
from hepcache.columns.transport import Range
from hepcache.errors import ObjectStoreError, OriginError, UnknownColumnError
from hepcache.objectstore.ntuple import NTuple, Reading
from hepcache.telemetry import ReadLog

__all__ = ["NTupleSource", "Traffic", "told"]


class Traffic(Protocol):
    """What an ntuple is read through, which counts."""

    @property
    def requested_bytes(self) -> int:
        """Bytes that were asked for."""
        ...

    @property
    def read_bytes(self) -> int:
        """Bytes that came."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Columns that are fetched before they are asked for."""

    names: frozenset[str]
    start: int
    stop: int
    future: Reading | None = None


class NTupleSource:
    """One ntuple.

    Parameters
    ----------
    ref
        The ntuple, as the catalogue knew it.
    ntuple
        What was found, and is the same.
    traffic
        What it is read through.
    whole_tree
        The ntuple as uproot has it, where it does.
    """

    def __init__(
        self, ref: TreeRef, ntuple: NTuple, traffic: Traffic, whole_tree: Any = None
    ) -> None:
        self.ref, self.ntuple = ref, ntuple
        self.whole_tree: Any = self.tree if whole_tree is None else whole_tree
        self._traffic = traffic
        self._turn = threading.RLock()
        self._reported = 0, 0
        self._numbers = count(1)
        self._ahead: dict[int, _Ahead] = {}

    @property
    def tree(self) -> Any:
        """The ntuple as uproot describes it; it tells of fields, but can't be read."""
        return self.ntuple.metadata.schema.model

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            layouts = told(self.ref, lambda: self._layouts(names, start, stop))
            # Fetching and decoding overlap; what one has to wait for is both.
            log.read_s += time.perf_counter() - began
            self.account(log)
            log.used_bytes += self.ntuple.stored_bytes(names, start, stop)
            return {name: from_layout(layouts[name], self.counter(name)) for name in names}

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
        """Return the column of lengths of a column's lists, if it is a plain one.

        ROOT's NanoAOD has such a field for each collection: a cardinality,
        which is a view of the offsets that the lists share.
        """
        form, _ = self._form(name)
        if (
            isinstance(form, ak.forms.ListOffsetForm)
            and isinstance(form.content, ak.forms.NumpyForm)
            and not form.parameters
        ):
            return self.ntuple.metadata.schema.cardinalities.get(form.form_key)
        return None

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
        for one in coming:
            one.wait()

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop what was expected."""
        with self._turn:
            for number, _ in ranges:
                one = self._ahead.pop(number, None)
                if one is not None and one.future is not None:
                    one.future.cancel()

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""
        requested, came = self._traffic.requested_bytes, self._traffic.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came

    def close(self) -> None:
        """Let go of the origin."""
        self._traffic.close()


def told(ref: TreeRef, work: Callable[[], Any]) -> Any:
    """Return what ``work`` does; a store's error becomes the origin's."""
    try:
        return work()
    except ObjectStoreError as error:
        # Of a file, the store is the file.
        words = f"object {error.name!r}: {error.problem}" if error.name else error.problem
        raise OriginError(ref.path, words) from error
