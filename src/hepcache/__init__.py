"""Cache-affine analysis of high-energy-physics data.

The second pass over a dataset, and every pass after it, runs at the speed of
local SSDs: chunks of events go, cycle after cycle, to the host that already
holds their columns.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. They are imported at first use, because coffea
# takes seconds to import and `hepcache --help` must not.
_HOMES: dict[str, str] = {
    "CycleReport": "hepcache.report",
    "Executor": "hepcache.process",
    "HTCondorCluster": "hepcache.clusters.htcondor",
    "LocalCluster": "hepcache.clusters",
    "RunRecord": "hepcache.report",
    "Runner": "hepcache.process",
    "analyse": "hepcache.api",
    "arrays": "hepcache.reading",
    "attach": "hepcache.clusters",
    "cachestrategy": "hepcache.cache",
    "derived": "hepcache.results",
    "events": "hepcache.reading",
    "fingerprint": "hepcache.results",
    "iterate": "hepcache.reading",
    "load_fileset": "hepcache.fileset",
    "warm": "hepcache.api",
}

__all__ = sorted(_HOMES)


def _check_dask() -> None:
    """Warn if pip has replaced Dask alone, as it does for dask-awkward."""
    try:
        dask, distributed = version("dask"), version("distributed")
    except PackageNotFoundError:
        return
    if dask != distributed:
        warnings.warn(
            f"dask {dask} and distributed {distributed} are installed, which don't work together; "
            "dask-awkward does that. To repair it: pip uninstall --yes dask-awkward && pip "
            "install --upgrade dask distributed",
            stacklevel=3,
        )


_check_dask()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hepcache' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
