"""Imports of worker processes, made once, beside those of the command itself."""

from __future__ import annotations

import os
from multiprocessing import forkserver

_MODULES = ["distributed.nanny", "hepcache.process.worker", "coffea.nanoevents", "hist"]
# As Dask sets them for its workers, and as early: libraries start their threads when imported.
_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
METHOD = {"distributed.worker.multiprocessing-method": "forkserver"}
"""Dask's setting by which workers are forked from what :func:`preload_workers` starts."""


def preload_workers() -> None:
    """Begin to import what workers need, in a process of its own; return at once.

    Workers are forked from it, so that they import nothing themselves, however many they are.
    """
    added = {name: text for name, text in _ENVIRONMENT.items() if name not in os.environ}
    forkserver.set_forkserver_preload(_MODULES)
    os.environ.update(added)
    try:
        forkserver.ensure_running()
    finally:
        for name in added:
            del os.environ[name]
