"""Checks of a machine as a member of an HTCondor pool; pure."""

from __future__ import annotations

from collections.abc import Sequence

from hepcache.doctor.finding import Finding
from hepcache.doctor.poolfacts import PoolFacts

__all__ = ["check_cache_mode", "check_pool"]

_EXTRA = "pip install 'hepcache[htcondor]'"
_TOKEN = "condor_token_fetch -token hepcache"  # noqa: S105 - a command, not a secret


def check_pool(seen: PoolFacts) -> list[Finding]:
    """Tell how a machine stands as a submit host, a worker or both.

    Parameters
    ----------
    seen
        What was seen; a machine without HTCondor has one finding.
    """
    if not seen.configured:
        return [Finding("HTCondor", "none", "no HTCondor here, so no pool")]
    if seen.missing_package:
        observation = f"it is configured, but Python has no {seen.missing_package}"
        return [Finding("HTCondor", "wrong", observation, _EXTRA)]
    roles = [
        role
        for daemon, role in (("COLLECTOR", "manager"), ("SCHEDD", "submit"), ("STARTD", "worker"))
        if daemon in seen.daemons
    ]
    found = [Finding("HTCondor", "good", f"this machine is {' and '.join(roles) or 'a client'}")]
    found.append(_collector(seen))
    if "SCHEDD" in seen.daemons or not seen.daemons:
        found += [_commands(seen), _schedd(seen), _address(seen)]
        if not seen.collector_problem:
            found.append(_machines(seen))
    if "STARTD" in seen.daemons:
        found += [_script(seen), _advertised(seen), _draining(seen)]
    return found


def check_cache_mode(mode: str, cached_mounts: int) -> Finding:
    """Tell whether somebody keeps what is read.

    Parameters
    ----------
    mode
        ``hepcache.cache.mode``.
    cached_mounts
        How many mounts of NFS have the option ``fsc``.
    """
    check = "cache mode"
    if mode == "columns":
        return Finding(check, "good", "columns: hepcache keeps decoded columns")
    if cached_mounts:
        return Finding(check, "good", f"{mode}, and the kernel keeps {cached_mounts} mount of NFS")
    fix = "mount the store with -o fsc (Ansible roles fscache, nfs_client), or mode: columns"
    if mode == "fscache":
        observation = "fscache, but no NFS is mounted with fsc: nothing is kept at all"
        return Finding(check, "wrong", observation, fix)
    observation = "both, but no NFS is mounted with fsc: only columns are kept"
    return Finding(check, "warning", observation, fix)


def _collector(seen: PoolFacts) -> Finding:
    check = f"collector {seen.collector or 'of the pool'}"
    if seen.collector_problem:
        fix = f"condor_ping -type collector READ, and on it: condor_status; {_TOKEN}"
        return Finding(check, "wrong", f"it does not answer: {seen.collector_problem}", fix)
    return Finding(check, "good", f"it answers, and knows {len(seen.machines)} machines")


def _commands(seen: PoolFacts) -> Finding:
    if seen.missing_commands:
        observation = f"not in the path: {', '.join(seen.missing_commands)}"
        return Finding("condor_submit", "wrong", observation, "sudo apt install condor")
    return Finding("condor_submit", "good", "it and condor_q, condor_rm are in the path")


def _schedd(seen: PoolFacts) -> Finding:
    if seen.schedd_problem:
        observation = f"jobs can't be submitted: {seen.schedd_problem}"
        return Finding("schedd", "wrong", observation, f"sudo systemctl start condor; {_TOKEN}")
    return Finding("schedd", "good", "it answers")


def _address(seen: PoolFacts) -> Finding:
    check = "scheduler address"
    if seen.address.startswith("127.") or seen.address in ("", "::1"):
        observation = f"workers would be told {seen.address or 'nothing'}, where none is"
        fix = "HTCondorCluster(scheduler_options={'host': 'an address the workers reach'})"
        return Finding(check, "wrong", observation, fix)
    return Finding(check, "good", f"workers reach this machine as {seen.address}")


def _machines(seen: PoolFacts) -> Finding:
    check, silent = "caches of the pool", _silent(seen.machines)
    if not seen.machines:
        return Finding(
            check, "wrong", "the pool has no machine", "sudo systemctl start condor on the workers"
        )
    if silent:
        observation = f"{len(silent)} of {len(seen.machines)} machines say nothing of a cache: "
        observation += ", ".join(silent[:5]) + (", ..." if len(silent) > 5 else "")
        fix = "install condor/config/20-hepcache-execute.config there (Ansible role condor)"
        return Finding(check, "warning", observation, fix)
    return Finding(check, "good", "every machine advertises HepcacheHost and its cache")


def _silent(machines: Sequence[tuple[str, bool]]) -> list[str]:
    return [name for name, advertises in machines if not advertises]


def _script(seen: PoolFacts) -> Finding:
    check = "startd cron script"
    fix = "install condor/bin/hepcache-startd-cron (Ansible role condor)"
    if not seen.script:
        return Finding(check, "warning", "none is configured, so jobs can't prefer caches", fix)
    if not seen.script_runs:
        return Finding(check, "wrong", f"{seen.script} can't be executed", fix)
    return Finding(check, "good", seen.script)


def _advertised(seen: PoolFacts) -> Finding:
    check = "advertised cache"
    if not seen.cache:
        return Finding(check, "warning", "HEPCACHE_CACHE is not configured", "see condor/config")
    if not seen.cache_there:
        fix = f"sudo install -d -m 1777 {seen.cache} (Ansible role ssd_cache)"
        return Finding(check, "wrong", f"{seen.cache} is not there", fix)
    return Finding(check, "good", seen.cache)


def _draining(seen: PoolFacts) -> Finding:
    check = "drain file"
    if seen.draining:
        observation = f"{seen.drain_file} is there, so this machine takes no worker"
        return Finding(check, "warning", observation, "sudo hepcache-drain stop")
    return Finding(check, "good", "this machine is in service")
