"""What the checks need to know of HTCondor on this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PoolFacts", "pool_facts"]

_COMMANDS = ("condor_submit", "condor_q", "condor_rm")
_PACKAGES = ("htcondor2", "dask_jobqueue", "cryptography")


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What was seen.

    Attributes
    ----------
    configured
        Whether there is a configuration of HTCondor.
    missing_package
        A Python package that is not installed; ``""`` for none.
    daemons
        Those that run here.
    collector, collector_problem
        Where the pool's collector is, and why it does not answer.
    schedd_problem
        Why this machine's schedd does not.
    missing_commands
        Commands that are not in the path.
    address
        Under which the pool can reach this machine.
    machines
        Machines of the pool, and whether each advertises its cache.
    script, script_runs
        The startd cron script, and whether it can be executed.
    cache, cache_there
        The cache that is advertised, and whether the directory exists.
    drain_file, draining
        The file that takes the machine out of the pool, and whether it exists.
    """

    configured: bool
    missing_package: str = ""
    daemons: frozenset[str] = frozenset()
    collector: str = ""
    collector_problem: str = ""
    schedd_problem: str = ""
    missing_commands: tuple[str, ...] = ()
    address: str = ""
    machines: tuple[tuple[str, bool], ...] = ()
    script: str = ""
    script_runs: bool = False
    cache: str = ""
    cache_there: bool = False
    drain_file: str = ""
    draining: bool = False


def pool_facts(drain_file: Path, root: Path = Path("/")) -> PoolFacts:
    """Look at HTCondor on this machine; of a dead daemon it takes some seconds.

    Parameters
    ----------
    drain_file
        The file that takes the machine out of the pool.
    root
        Where the distribution's files are found.
    """
    # The bindings point it there themselves where they find no configuration.
    named = os.environ.get("CONDOR_CONFIG", "/dev/null") != "/dev/null"
    if not named and not (root / "etc/condor/condor_config").is_file():
        return PoolFacts(configured=False)
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        return PoolFacts(configured=True, missing_package=missing[0])
    import htcondor2

    from hepcache.clusters.htcondor.network import address_towards_pool

    script, cache = _param("STARTD_CRON_HEPCACHE_EXECUTABLE"), _param("HEPCACHE_CACHE")
    collector_problem, machines = "", {}
    try:
        slots = htcondor2.Collector().query(
            htcondor2.AdType.Startd, projection=["Machine", "HepcacheHost"]
        )
        machines = {str(ad["Machine"]): "HepcacheHost" in ad for ad in slots}
    except Exception as error:
        collector_problem = str(error) or type(error).__name__
    schedd_problem = ""
    try:
        htcondor2.Schedd().query(constraint="false", projection=["ClusterId"])
    except Exception as error:
        schedd_problem = str(error) or type(error).__name__
    return PoolFacts(
        configured=True,
        daemons=frozenset(_param("DAEMON_LIST").replace(",", " ").split()),
        collector=_param("COLLECTOR_HOST"),
        collector_problem=collector_problem,
        schedd_problem=schedd_problem,
        missing_commands=tuple(one for one in _COMMANDS if shutil.which(one) is None),
        address=address_towards_pool(),
        machines=tuple(sorted(machines.items())),
        script=script,
        script_runs=bool(script) and os.access(script, os.X_OK),
        cache=cache,
        cache_there=bool(cache) and Path(cache).is_dir(),
        drain_file=str(drain_file),
        draining=drain_file.exists(),
    )


def _param(name: str) -> str:
    import htcondor2

    try:
        return str(htcondor2.param.get(name) or "").strip()
    except (KeyError, ValueError, RuntimeError):
        return ""
