"""``coffea.processor`` with hepcache below it: change the import of a script, and nothing else.

.. code-block:: diff

    -from coffea import processor
    +from hepcache import compat as processor

or, of single names,

.. code-block:: diff

    -from coffea.processor import DaskExecutor, Runner
    +from hepcache.compat import DaskExecutor, Runner

:class:`Runner` is hepcache's. :class:`DaskExecutor` attaches hepcache to its client's cluster
when it is first used; the workers need hepcache installed. Every other name is coffea's own.

Notes
-----
What a script may notice:

- Bad files raise :class:`~hepcache.errors.BadFileError`, which names all of them at once and
  is of coffea's type, too. ``skipbadfiles`` skips what it skips in coffea; files and chunks
  that were skipped are in ``run.run_record.skipped``.
- A processor that fails raises :class:`~hepcache.errors.ChunkError`, which says where; its own
  exception is the cause.
- Chunks end at segment boundaries where ``chunksize`` allows; every event is in exactly one.
  With ``align_clusters`` they are coffea's.
- An executor without a client uses the current one; without any there is an error, where coffea
  starts a cluster.
- A cluster's results are added up in the order in which they end; local executors
  keep coffea's order.
- Options that choose where coffea looks for files or sends tasks (``metadata_cache``,
  ``worker_affinity``) have nothing to do: the catalogue and the placement do both.
- ``factory.file_handle`` opens the file when it is read from, because a chunk that is cached
  does not.
- ``metrics["bytesread"]`` counts bytes of the origin only; ``metrics["cachebytes"]`` counts what
  came from the caches.
- ``format="parquet"`` and dataframes take coffea's own way, without the cache.
"""

from __future__ import annotations

from typing import Any

from hepcache.clusters import attach
from hepcache.process import Executor, Runner
from hepcache.process.executor import current_client
from hepcache.upstream.coffea import coffea_processor

__all__ = ["DaskExecutor", "Runner"]

_attached: set[str] = set()


class DaskExecutor(Executor):
    """hepcache's executor, which attaches hepcache to its client's cluster at first use."""

    def __call__(self, items: Any, function: Any, accumulator: Any) -> tuple[Any, int]:
        """Map ``function`` over ``items`` and return ``(accumulator, 0)``."""
        client = self.client or current_client()
        scheduler = str(client.scheduler_info()["id"])
        if scheduler not in _attached:
            attach(client)
            _attached.add(scheduler)
        return super().__call__(items, function, accumulator)


def __getattr__(name: str) -> Any:
    return getattr(coffea_processor, name)
