"""Tasks that two hosts try, and which of the two results counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Twins"]

T = TypeVar("T")


class Twins(Generic[T]):
    """Tasks and their duplicates; of each pair exactly one is counted.

    Any thread may use it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._other: dict[T, T] = {}
        self._counted: set[T] = set()
        self._lost: set[T] = set()

    def add(self, original: T, duplicate: Callable[[], T]) -> T | None:
        """Make a duplicate of a task, unless the task was counted already.

        Returns
        -------
        T or None
            The duplicate, if it was made.
        """
        with self._guard:
            if original in self._counted or original in self._other:
                return None
            made = duplicate()
            self._other |= {original: made, made: original}
            return made

    def has_lost(self, task: T) -> bool:
        """Tell whether a task's twin was counted, so that this one is not."""
        with self._guard:
            return task in self._lost

    def decide(self, task: T, *, failed: bool) -> tuple[bool, T | None]:
        """Take notice that a task ended.

        Parameters
        ----------
        task
            The task; it has not lost.
        failed
            Whether it failed, in which case its twin is waited for.

        Returns
        -------
        counts
            Whether its outcome is the pair's.
        loser
            Its twin, which has lost now, if it had one.

        Examples
        --------
        >>> twins = Twins[str]()
        >>> twins.add("a", lambda: "b")
        'b'
        >>> twins.decide("b", failed=False), twins.has_lost("a")
        ((True, 'a'), True)
        """
        with self._guard:
            other = self._other.pop(task, None)
            if other is not None:
                del self._other[other]
                if failed:
                    return False, None
                self._lost.add(other)
            self._counted.add(task)
            return True, other
