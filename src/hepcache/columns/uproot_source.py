"""Columns of a TTree, found with uproot and read in few requests."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import awkward as ak
import uproot
from uproot.behaviors.RNTuple import HasFields

from hepcache.columns.baskets import Basket, Piece, coalesced, decoded
from hepcache.columns.column import Column, Counted, Flat, Values, from_layout
from hepcache.columns.object_source import file_source
from hepcache.columns.origin import Origin, open_origin
from hepcache.columns.plan import Plan, counter_of, plan, stored
from hepcache.columns.source import Source, TreeRef
from hepcache.columns.table import Table
from hepcache.columns.tablefile import tree_table
from hepcache.columns.transport import Range
from hepcache.errors import OriginError, UnknownColumnError
from hepcache.fileset import look
from hepcache.fileset.freshness import storage_options
from hepcache.telemetry import ReadLog

__all__ = ["UprootSource"]


class UprootSource:
    """One tree of one file, opened at its origin.

    Parameters
    ----------
    ref
        The tree, as the catalogue knew it.

    Raises
    ------
    OriginError
        The file can't be opened, or is not the one the catalogue knew.
    """

    def __init__(self, ref: TreeRef) -> None:
        self.ref = ref
        self._turn = threading.RLock()
        self._origin: Origin = open_origin(ref.path, storage_options(ref.options))
        try:
            self._file: Any = uproot.open(self._origin, **_uproot_options(ref))
            table = tree_table(self._file, ref.tree, ref.content, ref.store)
            self.tree: Any = self._file[ref.tree] if table is None else table
            self._check()
        except OriginError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise OriginError(ref.path, f"{type(error).__name__}: {error}") from error
        self._reported = 0, 0

    @cached_property
    def whole_tree(self) -> Any:
        """The tree as uproot has it, parsed when it is asked for."""
        with self._turn:
            return self._file[self.ref.tree] if isinstance(self.tree, Table) else self.tree

    def best(self) -> Source:
        """Return what reads this tree best: an ntuple is read by pages."""
        if not isinstance(self.tree, HasFields):
            return self
        try:
            return file_source(self.ref, self._origin, self.tree)
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        if self.ref.validator:
            passed = storage_options(self.ref.options)
            if look(self.ref.path, passed).validator != self.ref.validator:
                raise OriginError(
                    self.ref.path,
                    "the file was written while it was being analysed; run again to take up "
                    "what it holds now",
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
            fetched_s, used_s = self._origin.fetch_s, self._origin.use_s
            try:
                columns = self._columns(names, start, stop, log)
            except (UnknownColumnError, OriginError):
                raise
            except Exception as error:
                problem = f"entries {start} to {stop}: {type(error).__name__}: {error}"
                raise OriginError(self.ref.path, problem) from error
            passed_s = time.perf_counter() - began
            fetched_s, used_s = self._origin.fetch_s - fetched_s, self._origin.use_s - used_s
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
        direct = {name: one for name, one in plans.items() if one is not None}
        values = self._direct(direct, log)
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
        baskets = [basket for one in plans.values() for basket in one.baskets]
        found: list[Values | None] = [None] * len(baskets)
        dtypes = [one.dtype for one in plans.values() for _ in one.baskets]
        pieces = self._pieces(baskets)

        def use(number: int, raw: memoryview) -> None:
            for index in pieces[number].baskets:
                offset = baskets[index].seek - pieces[number].start
                data = raw[offset : offset + baskets[index].nbytes]
                found[index] = decoded(baskets[index], data, dtypes[index])

        self._origin.gather([(piece.start, piece.length) for piece in pieces], use)
        log.used_bytes += sum(basket.nbytes for basket in baskets)
        parts = iter(found)
        return {
            name: one.assembled([next(parts) for _ in one.baskets]) for name, one in plans.items()
        }

    def _pieces(self, baskets: Sequence[Basket]) -> list[Piece]:
        return coalesced(baskets, gap=self._origin.gap_bytes, most=self._origin.most_bytes)

    def has(self, name: str) -> bool:
        """Tell whether there is a column of this name."""
        return name in self.tree

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[Range]:
        """Return the ranges of the file that :meth:`read` will need.

        Parameters
        ----------
        names, start, stop
            As :meth:`read` will be given them. Of columns that uproot has to
            read nothing is known.
        """
        with self._turn:
            plans = [plan(self._branch(name), start, stop) for name in names]
        baskets = [basket for one in plans if one is not None for basket in one.baskets]
        return [(piece.start, piece.length) for piece in self._pieces(baskets)]

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to fetch ranges that will be read."""
        self._origin.expect(ranges)

    def await_few(self) -> None:
        """Return when little of what was expected is still to come."""
        self._origin.await_few()

    def forget(self, ranges: Sequence[Range]) -> None:
        """Drop ranges that were expected and not read."""
        self._origin.forget(ranges)

    def account(self, log: ReadLog) -> None:
        """Count in ``log`` what was asked of the origin since the last call."""
        requested, came = self._origin.requested_bytes, self._origin.read_bytes
        log.requested_bytes += requested - self._reported[0]
        log.origin_bytes += came - self._reported[1]
        self._reported = requested, came

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
        baskets = [one for name in names for one in stored(self._branch(name), start, stop)]
        log.used_bytes += sum(basket.nbytes for basket in baskets)
        ranges = [(piece.start, piece.length) for piece in self._pieces(baskets)]
        # uproot asks for one basket after the other; together they come sooner.
        self._origin.expect(ranges)
        try:
            return {name: self.whole_tree[name].array(**options).layout for name in names}
        finally:
            self._origin.forget(ranges)

    def close(self) -> None:
        """Close the file."""
        with suppress(AttributeError):
            self._file.close()
        self._origin.close()


def _uproot_options(ref: TreeRef) -> dict[str, Any]:
    # The handler is ours, and what only concerns other handlers has no effect.
    ignored = {"handler", "storage_options", "timeout", "num_workers", "use_threads"}
    ignored |= storage_options(ref.options).keys()
    options = {key: value for key, value in ref.options.items() if key not in ignored}
    return {**options, "use_threads": False}
