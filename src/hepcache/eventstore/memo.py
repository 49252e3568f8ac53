"""What look-ups remember of one snapshot of an engine."""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, Protocol, TypeVar

__all__ = ["Found", "Memo"]

_MOST = 65_536  # values of the engine that are referred to


class Found(Protocol):
    """A value of the engine that holds consecutive numbers."""

    @property
    def first(self) -> int:
        """The lowest number."""

    @property
    def last(self) -> int:
        """The highest number."""


FoundT = TypeVar("FoundT", bound=Found)


class Memo(Generic[FoundT]):
    """Leaves that were found in one snapshot, by the beginning of their keys.

    They point into the engine, and are asked for only by views of this very snapshot,
    in which what they point to can't have changed. Whatever is written makes another
    snapshot, by whichever process, and so another memo.

    Parameters
    ----------
    snapshot
        Its number.

    Notes
    -----
    Safe to use from several threads: entries are replaced, never changed.
    """

    __slots__ = ("_alone", "_leaves", "_size", "snapshot")

    def __init__(self, snapshot: int = 0) -> None:
        self.snapshot = snapshot
        self._leaves: dict[bytes, tuple[list[int], list[FoundT]]] = {}
        self._alone: dict[bytes, bool] = {}
        self._size = 0

    def find(self, prefix: bytes, number: int) -> FoundT | None:
        """Return the known leaf whose span has a number, or None."""
        known = self._leaves.get(prefix)
        if known is None:
            return None
        firsts, leaves = known
        found = leaves[bisect_right(firsts, number) - 1]
        # Before the first of all, the last one is looked at: its span doesn't have it either.
        return found if found.first <= number <= found.last else None

    def add(self, prefix: bytes, leaf: FoundT, size: int) -> None:
        """Keep a leaf that refers to so many values."""
        if self._size + size > _MOST:
            self._leaves, self._alone, self._size = {}, {}, 0
        firsts, leaves = self._leaves.get(prefix, ([], []))
        at = bisect_right(firsts, leaf.first)
        if at and firsts[at - 1] == leaf.first:
            return
        self._leaves[prefix] = (
            [*firsts[:at], leaf.first, *firsts[at:]],
            [*leaves[:at], leaf, *leaves[at:]],
        )
        self._size += size

    def has_rows(self, prefix: bytes) -> bool | None:
        """Return whether anything begins with a prefix; None if nobody has looked."""
        return self._alone.get(prefix)

    def note_rows(self, prefix: bytes, *, there: bool) -> None:
        """Note whether anything begins with a prefix."""
        if len(self._alone) >= _MOST:
            self._alone = {}
        self._alone[prefix] = there
