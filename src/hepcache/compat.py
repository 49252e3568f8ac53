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

- A bad file raises :class:`~hepcache.errors.BadFileError`, an ``OSError``, which names all bad
  files at once. ``skipbadfiles=True`` skips them, missing trees included, and they are listed
  in ``run.run_record.problems``.
- A processor that fails raises :class:`~hepcache.errors.ProcessorError` with coffea's words;
  its own exception is the cause.
- Chunks end at segment boundaries where ``chunksize`` allows; every event is in exactly one.
  With ``align_clusters`` they are coffea's.
- Options that choose where coffea looks for files or sends tasks (``metadata_cache``,
  ``worker_affinity``) have nothing to do: the catalogue and the placement do both.
- ``factory.file_handle`` opens the file when it is asked for, because a chunk that is cached
  does not.
- ``format="parquet"`` and dataframes take coffea's own way, without the cache.
"""

from __future__ import annotations

from typing import Any

from hepcache.clusters.attach import attach
from hepcache.process import Executor, Runner
from hepcache.process.executor import current_client
from hepcache.process.upstream import coffea_processor

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
