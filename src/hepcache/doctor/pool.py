"""Checks of a machine as a member of an HTCondor pool, and the facts that they need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hepcache.doctor.checks import Finding

_COMMANDS = ("condor_submit", "condor_q", "condor_rm")
_PACKAGES = ("htcondor2", "dask_jobqueue", "cryptography")
_EXTRA = "pip install 'hepcache[htcondor]'"
_TOKEN = "condor_token_fetch -token hepcache"  # noqa: S105 - a command, not a secret


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What was seen of HTCondor on this machine; texts are ``""`` where there is nothing."""

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
    """Look at HTCondor on this machine; a daemon that is dead takes some seconds."""
    # The bindings point it there themselves where they find no configuration.
    named = os.environ.get("CONDOR_CONFIG", "/dev/null") != "/dev/null"
    if not named and not (root / "etc/condor/condor_config").is_file():
        return PoolFacts(configured=False)
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        return PoolFacts(configured=True, missing_package=missing[0])
    import htcondor2

    from hepcache.clusters.htcondor.pool import address_towards_pool

    script = _param("STARTD_CRON_HEPCACHE_EXECUTABLE")
    cache = _param("HEPCACHE_CACHE")
    collector_problem = ""
    machines = {}
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
        missing_commands=tuple(command for command in _COMMANDS if shutil.which(command) is None),
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


def check_pool(seen: PoolFacts) -> Iterator[Finding]:
    """Check a machine as a submit host, a worker or both; without HTCondor in one finding."""
    if not seen.configured:
        yield Finding("HTCondor", "none", "no HTCondor here, so no pool")
        return
    if seen.missing_package:
        observation = f"it is configured, but Python has no {seen.missing_package}"
        yield Finding("HTCondor", "wrong", observation, _EXTRA)
        return
    roles = [
        role
        for daemon, role in (("COLLECTOR", "manager"), ("SCHEDD", "submit"), ("STARTD", "worker"))
        if daemon in seen.daemons
    ]
    yield Finding("HTCondor", "good", f"this machine is {' and '.join(roles) or 'a client'}")
    check = f"collector {seen.collector or 'of the pool'}"
    if seen.collector_problem:
        fix = f"condor_ping -type collector READ, and on it: condor_status; {_TOKEN}"
        yield Finding(check, "wrong", f"it does not answer: {seen.collector_problem}", fix)
    else:
        yield Finding(check, "good", f"it answers, and knows {len(seen.machines)} machines")
    if "SCHEDD" in seen.daemons or not seen.daemons:
        yield from _check_submit_host(seen)
    if "STARTD" in seen.daemons:
        yield from _check_worker(seen)


def _check_submit_host(seen: PoolFacts) -> Iterator[Finding]:
    if seen.missing_commands:
        observation = f"not in the path: {', '.join(seen.missing_commands)}"
        remedy = "sudo apt install condor, or sudo dnf install condor"
        yield Finding("condor_submit", "wrong", observation, remedy)
    else:
        yield Finding("condor_submit", "good", "it and condor_q, condor_rm are in the path")
    if seen.schedd_problem:
        observation = f"jobs can't be submitted: {seen.schedd_problem}"
        yield Finding("schedd", "wrong", observation, f"sudo systemctl start condor; {_TOKEN}")
    else:
        yield Finding("schedd", "good", "it answers")
    if seen.address.startswith("127.") or seen.address in ("", "::1"):
        observation = f"workers would be told {seen.address or 'nothing'}, where none is"
        fix = "HTCondorCluster(scheduler_options={'host': 'an address the workers reach'})"
        yield Finding("scheduler address", "wrong", observation, fix)
    else:
        observation = f"workers reach this machine as {seen.address}"
        yield Finding("scheduler address", "good", observation)
    if seen.collector_problem:
        return
    check = "caches of the pool"
    silent = [name for name, advertises in seen.machines if not advertises]
    if not seen.machines:
        fix = "sudo systemctl start condor on the workers"
        yield Finding(check, "wrong", "the pool has no machine", fix)
    elif silent:
        observation = f"{len(silent)} of {len(seen.machines)} machines say nothing of a cache: "
        observation += ", ".join(silent[:5]) + (", ..." if len(silent) > 5 else "")
        fix = "install condor/config/20-hepcache-execute.config there (Ansible role condor)"
        yield Finding(check, "warning", observation, fix)
    else:
        yield Finding(check, "good", "every machine advertises HepcacheHost and its cache")


def _check_worker(seen: PoolFacts) -> Iterator[Finding]:
    check = "startd cron script"
    fix = "install condor/bin/hepcache-startd-cron (Ansible role condor)"
    if not seen.script:
        yield Finding(check, "warning", "none is configured, so jobs can't prefer caches", fix)
    elif not seen.script_runs:
        yield Finding(check, "wrong", f"{seen.script} can't be executed", fix)
    else:
        yield Finding(check, "good", seen.script)
    check = "advertised cache"
    if not seen.cache:
        yield Finding(check, "warning", "HEPCACHE_CACHE is not configured", "see condor/config")
    elif not seen.cache_there:
        fix = f"sudo install -d -m 1777 {seen.cache} (Ansible role ssd_cache)"
        yield Finding(check, "wrong", f"{seen.cache} is not there", fix)
    else:
        yield Finding(check, "good", seen.cache)
    if seen.draining:
        observation = f"{seen.drain_file} is there, so this machine takes no worker"
        yield Finding("drain file", "warning", observation, "sudo hepcache-drain stop")
    else:
        yield Finding("drain file", "good", "this machine is in service")
