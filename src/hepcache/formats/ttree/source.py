"""Columns of a TTree, found with uproot and read in few requests."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import awkward as ak
import uproot

from hepcache.credentials import told_cause
from hepcache.errors import BadFileError, ColumnError, OriginError, UnknownColumnError
from hepcache.formats.column import Column, Counted, Flat, Values, from_layout
from hepcache.formats.source import TreeRef, raise_uproots
from hepcache.formats.ttree.baskets import (
    HEAD_BYTES,
    Assembly,
    Basket,
    BasketError,
    Plan,
    counter_of,
    item_count,
    plan,
    stored,
)
from hepcache.formats.ttree.branch_table import BranchTable, tree_table
from hepcache.io.origin import OriginFile, open_origin
from hepcache.io.ranges import MergedRange, ObjectRange, Range, coalesced
from hepcache.io.replicas import reason_of
from hepcache.io.retry import causes, error_text
from hepcache.io.validator import freshness_of, storage_options
from hepcache.telemetry import ReadLog, place_uses


class UprootSource:
    """One tree of one file, opened at its origin.

    ``check``: raises an error unless one of the file's places has the content that is wanted.
    """

    def __init__(self, ref: TreeRef, check: Callable[[str], None] = lambda _: None) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self.origin: OriginFile = open_origin(
            ref.path, storage_options(ref.options), ref.places, check
        )
        try:
            self._file: Any = uproot.open(self.origin, **_uproot_options(ref))
            table = tree_table(self._file, ref.tree, ref.content, ref.store)
            self.tree: Any = self._file[ref.tree] if table is None else table
            self._check()
        except Exception as error:
            self.close()
            _raise_input(error, ref.path)
            error.add_note(f"while opening tree {ref.tree} of {ref.path}")
            raise
        self._reported = 0, 0

    @cached_property
    def whole_tree(self) -> Any:
        """The tree as uproot has it, parsed when it is asked for."""
        with self._turn:
            return self._file[self.ref.tree] if isinstance(self.tree, BranchTable) else self.tree

    def _check(self) -> None:
        if self.ref.validator and len(self.ref.places) < 2:
            try:
                fresh = freshness_of(self.ref.place, storage_options(self.ref.options))
            except BadFileError as error:
                raise OriginError(self.ref.path, reason_of(error)) from error
            if fresh.validator != self.ref.validator:
                raise OriginError(
                    self.ref.path,
                    "the file was written while it was being analysed; run again to take up "
                    "its present content",
                )
        found = (str(self._file.file.uuid), int(self.tree.num_entries))
        expected = (self.ref.uuid, self.ref.boundaries[-1])
        if found != expected:
            raise OriginError(
                self.ref.path,
                f"the file was replaced while it was being analysed (UUID and entries were "
                f"{expected}, now {found}); run again to take up the new file",
            )

    def read(self, names: Sequence[str], start: int, stop: int, log: ReadLog) -> dict[str, Column]:
        """Return columns of the entries ``start`` to ``stop``; see :class:`Source`."""
        with self._turn:
            began = time.perf_counter()
            fetched_s, used_s = self.origin.fetch_s, self.origin.use_s
            try:
                columns = self._columns(names, start, stop, log)
            except Exception as error:
                _raise_input(error, self.ref.path)
                raise
            passed_s = time.perf_counter() - began
            fetched_s, used_s = self.origin.fetch_s - fetched_s, self.origin.use_s - used_s
            # Threads' seconds overlap; what has passed is shared out among them.
            waited_s = fetched_s * passed_s / max(passed_s, fetched_s + used_s)
            log.read_s += waited_s
            log.decode_s += passed_s - waited_s
            self.account(log)
            return columns

    def _columns(
        self, names: Sequence[str], start: int, stop: int, log: ReadLog
    ) -> dict[str, Column]:
        plans = {name: plan(self._branch(name), start, stop) for name in names}
        direct = {name: found for name, found in plans.items() if found is not None}
        try:
            values = self._direct(direct, log)
        except BasketError as error:
            raise_uproots(self.whole_tree, direct, start, stop, str(error))
            raise ColumnError(self.ref.path, error.basket.branch, str(error)) from None
        layouts = self._layouts([name for name in names if name not in direct], start, stop, log)
        columns: dict[str, Column] = {}
        for name in names:
            counter = self.counter(name)
            if name in layouts:
                columns[name] = from_layout(layouts[name], counter)
            elif counter is None:
                columns[name] = Flat(values[name])
            else:
                columns[name] = Counted(stop - start, values[name], counter)
        return columns

    def _direct(self, plans: Mapping[str, Plan], log: ReadLog) -> dict[str, Values]:
        columns = {name: Assembly(column_plan) for name, column_plan in plans.items()}
        places = [
            (column, number)
            for column in columns.values()
            for number in range(len(column.plan.baskets))
        ]
        baskets = [column.plan.baskets[number] for column, number in places]
        pieces = self._pieces(baskets)
        ranges = [(piece.start, piece.length) for piece in pieces]
        self._look_ahead(columns.values())

        def use(number: int, raw: memoryview) -> None:
            for index in pieces[number].members:
                offset = baskets[index].seek - pieces[number].start
                column, position = places[index]
                column.decode(position, raw[offset : offset + baskets[index].nbytes])

        self.origin.gather(ranges, use)
        log.used_bytes += sum(basket.nbytes for basket in baskets)
        return {name: column.result() for name, column in columns.items()}

    def _look_ahead(self, columns: Iterable[Assembly]) -> None:
        """Learn how long baskets are whose beginning costs nothing to read.

        What is known before it comes is decoded straight to its place.
        """
        head = memoryview(bytearray(HEAD_BYTES))
        for column in columns:
            for number in column.missing_counts:
                basket = column.plan.baskets[number]
                length = self.origin.in_memory(basket.seek, head[: basket.nbytes])
                # What is wrong with it will be wrong again when it is read.
                with suppress(BasketError):
                    count = item_count(basket, head[:length], column.plan.dtype)
                    column.note_count(number, count)

    def _pieces(self, baskets: Sequence[Basket]) -> list[MergedRange]:
        ranges = [ObjectRange(0, basket.seek, basket.nbytes) for basket in baskets]
        return coalesced(ranges, self.origin.gap_bytes, self.origin.most_bytes)

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.tree

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return the ranges of the file that :meth:`read` will need.

        ``names``, ``start``, ``stop``: as :meth:`read` will be given them. Of columns that uproot
        has to read nothing is known.
        """
        with self._turn:
            plans = [plan(self._branch(name), start, stop) for name in names]
        baskets = [
            basket
            for column_plan in plans
            if column_plan is not None
            for basket in column_plan.baskets
        ]
        return [(piece.start, piece.length) for piece in self._pieces(baskets)]

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch ranges that will be read."""
        self.origin.expect(ranges)

    def await_few(self) -> None:
        """Return when little of what was expected is still to come."""
        self.origin.await_few()

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop ranges that were expected and not read."""
        self.origin.forget(ranges)

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""
        requested, came = self.origin.requested_bytes, self.origin.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came
        log.places = place_uses(log.places, self.origin.take_uses())

    def _branch(self, name: str) -> Any:
        try:
            return self.tree[name]
        except KeyError:
            near = difflib.get_close_matches(name, self.tree.keys(), 3)
            raise UnknownColumnError(name, self.ref.path, near) from None

    def counter(self, name: str) -> str | None:
        """Return the column of lengths of a column's lists, if it is a plain one."""
        return counter_of(self._branch(name))

    def _layouts(
        self, names: Sequence[str], start: int, stop: int, log: ReadLog
    ) -> dict[str, ak.contents.Content]:
        """Return what uproot makes of columns that can't be read directly."""
        options = {"entry_start": start, "entry_stop": stop}
        baskets = [basket for name in names for basket in stored(self._branch(name), start, stop)]
        log.used_bytes += sum(basket.nbytes for basket in baskets)
        ranges = [(piece.start, piece.length) for piece in self._pieces(baskets)]
        # uproot asks for one basket after the other; together they come sooner.
        self.origin.expect(ranges)
        try:
            return {name: self.whole_tree[name].array(**options).layout for name in names}
        finally:
            self.origin.forget(ranges)

    def close(self) -> None:
        """Close the file."""
        with suppress(AttributeError):
            self._file.close()
        self.origin.close()


def _raise_input(error: Exception, path: str) -> None:
    """Raise the error of the origin that led to an exception, if failed input did."""
    for cause in causes(error):
        if isinstance(cause, OriginError):
            raise cause
    if isinstance(error, OSError):
        raise OriginError(path, error_text(error)) from told_cause(error)


def _uproot_options(ref: TreeRef) -> dict[str, Any]:
    # The handler is ours, and what only concerns other handlers has no effect.
    ignored = {"handler", "storage_options", "timeout", "num_workers", "use_threads"}
    ignored |= storage_options(ref.options).keys()
    options = {key: value for key, value in ref.options.items() if key not in ignored}
    return {**options, "use_threads": False}
