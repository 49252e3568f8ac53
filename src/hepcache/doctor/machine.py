"""Checks of the process, the clock and the catalogue; pure."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hepcache.doctor.finding import Finding

__all__ = ["check_catalogue", "check_clock", "check_open_files"]

_FEW_FILES, _MANY_WORKERS_FILES = 1024, 4096
_SKEW_S = 2.0
_DAY_S = 86_400.0


def check_open_files(soft: int, hard: int) -> Finding:
    """Compare the limit of open files with what workers and schedulers need.

    Parameters
    ----------
    soft, hard
        ``RLIMIT_NOFILE``; -1 for no limit.
    """
    check, wanted = "open files", _MANY_WORKERS_FILES
    fix = f"ulimit -n {wanted}"
    if 0 <= hard < wanted:
        fix = f"echo '* hard nofile {wanted}' | sudo tee -a /etc/security/limits.d/hepcache.conf"
    if soft < 0 or soft >= wanted:
        limit = "no limit" if soft < 0 else f"{soft:,} in a process"
        return Finding(check, "good", limit)
    if soft >= _FEW_FILES:
        observation = f"{soft:,} in a process; a scheduler of more than 100 workers needs more"
        return Finding(check, "good", observation, fix)
    return Finding(check, "wrong", f"only {soft:,} in a process; a worker needs more", fix)


def check_clock(
    now_s: float, written_s: float | None, installed_s: float, synchronised: bool | None
) -> Finding:
    """Tell whether the clock can be right.

    Parameters
    ----------
    now_s
        Seconds since the epoch.
    written_s
        The time that a file has which was written to the cache volume at
        that moment; ``None`` where none could be written.
    installed_s
        When hepcache was installed here.
    synchronised
        Whether the kernel says that its clock is; ``None`` where it says nothing.
    """
    check, fix = "clock", "sudo timedatectl set-ntp true"
    today = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if now_s < installed_s - _DAY_S:
        return Finding(check, "wrong", f"it says {today}, before hepcache was installed", fix)
    skew_s = 0.0 if written_s is None else written_s - now_s
    if abs(skew_s) > _SKEW_S:
        observation = f"files on the cache volume get times {skew_s:+.1f} s from this clock"
        return Finding(check, "warning", observation, fix)
    if synchronised is None:
        return Finding(check, "unknown", f"{today}; the kernel doesn't say if it is set by others")
    if not synchronised:
        observation = f"{today}, not synchronised: reports compare times of several hosts"
        return Finding(check, "warning", observation, fix)
    return Finding(check, "good", f"{today}, synchronised")


def check_catalogue(path: Path, problem: str, *, exists: bool, local: bool) -> Finding:
    """Tell whether the catalogue can be written.

    Parameters
    ----------
    path
        Its file.
    problem
        Why it can't; ``""`` where it can.
    exists
        Whether it is there.
    local
        Whether it is on a file system of this machine alone.
    """
    check = "catalogue"
    if problem:
        fix = "export DASK_HEPCACHE__CATALOGUE=/path/you/can/write/catalogue.sqlite"
        return Finding(check, "wrong", f"{path}: {problem}", fix)
    if not exists:
        return Finding(check, "good", f"{path} will be made by the first run")
    where = "" if local else "; on a file server, so that one process at a time uses it"
    return Finding(check, "good", f"{path} can be written{where}")
