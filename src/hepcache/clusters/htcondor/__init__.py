"""Workers as jobs of an HTCondor pool."""

from __future__ import annotations

from hepcache.upstream.distributed import keep_interrupts

try:
    import cryptography  # noqa: F401
    import htcondor2  # noqa: F401

    with keep_interrupts():
        import dask_jobqueue  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"HTCondorCluster needs {error.name}; say: pip install 'hepcache[htcondor]'"
    ) from error

from hepcache.clusters.htcondor.cluster import HTCondorCluster
from hepcache.clusters.htcondor.pool import Machine, Pool

__all__ = ["HTCondorCluster", "Machine", "Pool"]
