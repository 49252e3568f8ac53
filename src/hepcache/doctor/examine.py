"""All checks of one machine, in the order in which they are read."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hepcache.cache.contents import stored_columns
from hepcache.cache.disk.layout import Layout
from hepcache.cache.space import Limits, look_at_volume
from hepcache.catalogue.database import on_local_volume
from hepcache.doctor import facts
from hepcache.doctor.checks import (
    Finding,
    check_capacity,
    check_catalogue,
    check_clock,
    check_directory,
    check_free_space,
    check_locks,
    check_maps,
    check_open_files,
    check_packages,
    check_volume,
)
from hepcache.doctor.nfs import (
    check_cache_mode,
    check_daemon,
    check_module,
    check_mounts,
    check_path,
)
from hepcache.doctor.pool import check_pool, pool_facts
from hepcache.fscache import Snapshot, mount_of, snapshot
from hepcache.io.transport import is_url, location
from hepcache.report.machine import storage
from hepcache.settings import Settings, settings


def examine(paths: Sequence[str] = (), *, root: Path = Path("/")) -> list[Finding]:
    """Check whether this machine suits a cache, and paths an origin.

    Parameters
    ----------
    paths
        Files or directories that are analysed; of those on NFS it is checked
        that the kernel keeps what is read.
    root
        Where the kernel's files and the distribution's are found.

    Returns
    -------
    list of Finding
        One per check. The cache directory is not made where it is missing;
        a file is written beside it and removed.

    Raises
    ------
    ConfigurationError
        A setting has the wrong type or range.
    """
    chosen = settings()
    found = _volume_findings(chosen, chosen.cache_directory, group=False)
    if chosen.group_directory is not None:
        found += _volume_findings(chosen, chosen.group_directory, group=True)
    seen = snapshot(root / "proc")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    trial = facts.try_files(facts.existing(chosen.cache_directory))
    catalogue = chosen.catalogue.expanduser().absolute()
    parent = facts.existing(catalogue.parent)
    return [
        *found,
        check_open_files(soft, hard),
        check_clock(
            trial.now_s,
            trial.written_s,
            Path(__file__).stat().st_ctime,
            facts.clock_synchronised(),
        ),
        check_catalogue(
            catalogue,
            facts.catalogue_problem(catalogue),
            exists=catalogue.exists(),
            local=on_local_volume(parent),
        ),
        check_cache_mode(chosen.cache_mode, len(seen.cached_mounts)),
        *_nfs_findings(paths, seen, root),
        *check_pool(pool_facts(chosen.drain_file, root)),
        *check_packages(facts.missing_names()),
    ]


def _volume_findings(chosen: Settings, directory: Path, *, group: bool) -> list[Finding]:
    directory = directory.expanduser().absolute()
    problem = facts.directory_problem(directory, group=group)
    place = facts.existing(directory)
    volume = look_at_volume(Layout(place))
    limits = Limits.configured(chosen)
    trial = facts.try_files(place)
    found = [
        check_directory(directory, problem, exists=directory.exists(), group=group),
        check_volume(storage(place)),
        check_free_space(volume, limits),
        check_capacity(volume, limits, 0 if problem else _used_bytes(directory, group=group)),
        check_locks(trial.locks_error),
        check_maps(trial.maps_error),
    ]
    if group:
        found[1:] = [replace(finding, check=f"group's {finding.check}") for finding in found[1:]]
    return found


def _used_bytes(directory: Path, *, group: bool) -> int:
    # Counted anew, since opening the cache's own index could create it.
    return sum(stored.nbytes for stored in stored_columns(Layout(directory, group=group)))


def _nfs_findings(paths: Sequence[str], seen: Snapshot, root: Path) -> list[Finding]:
    found = [check_mounts(seen.nfs_mounts)]
    asked = bool(seen.cached_mounts)
    for path in paths:
        if is_url(path):
            found.append(check_path(path, None, seen))
            continue
        place = Path(location(path))
        if not place.exists():
            found.append(
                Finding(path, "wrong", "there is no such file", "sudo mount -a, or another path")
            )
            continue
        mount = mount_of(os.path.realpath(place), seen.mounts or ())
        found.append(check_path(path, mount, seen))
        asked |= mount is not None and mount.nfs
    if not asked:
        return found
    family = facts.family(root)
    elsewhere = "another dir in /etc/cachefilesd.conf, then sudo systemctl restart cachefilesd"
    volume = check_volume(storage(facts.fscache_directory(root)), "FS-Cache volume")
    return [
        *found,
        check_module(facts.module_state(root, "cachefiles"), family),
        check_daemon(seen, running=facts.running(root / "proc", "cachefilesd"), family=family),
        replace(volume, fix=elsewhere) if volume.fix.startswith("export") else volume,
    ]
