"""uproot's reading of files through the emulated link, so that the peer meets it too."""

from __future__ import annotations

import queue
from typing import Any

from uproot.source.chunk import Chunk
from uproot.source.fsspec import FSSpecSource

from hepcache.io.emulated_link import emulated_link

__all__ = ["ShapedSource"]


class ShapedSource(FSSpecSource):
    """What uproot takes for a path by default, behind the emulated link, if there is one."""

    def _take(self, nbytes: int) -> None:
        link = emulated_link()
        if link is not None:
            link.take(nbytes)

    def chunk(self, start: int, stop: int) -> Chunk:
        """Read one range."""
        self._take(stop - start)
        return super().chunk(start, stop)

    def chunks(
        self, ranges: list[tuple[int, int]], notifications: queue.Queue[Any]
    ) -> list[Chunk]:
        """Read ranges."""
        self._take(sum(stop - start for start, stop in ranges))
        return super().chunks(ranges, notifications)  # type: ignore[no-any-return]
