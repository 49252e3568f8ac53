"""On which machine, and with which versions, a number was measured."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["machine", "storage", "versions"]

_PACKAGES = ("hepcache", "coffea", "uproot", "awkward", "dask", "distributed", "numpy")


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {**found, "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Return the versions of hepcache, Python and the packages that do the reading."""
    return dict(_versions())


def machine() -> dict[str, Any]:
    """Describe this machine.

    Returns
    -------
    dict
        ``cores`` (usable by this process), ``memory_bytes``, ``cpu`` (its
        model), ``kernel``, ``system`` and ``storage`` of the temporary
        directory. No host name: reports are passed on.
    """
    return {
        "cores": _cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "system": platform.system(),
        "storage": storage(Path(tempfile.gettempdir())),
    }


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux knows affinity
        return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in ("model name", "cpu model", "hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def storage(directory: Path) -> dict[str, Any]:
    """Describe the volume that holds a directory.

    Parameters
    ----------
    directory
        It, or its first parent that exists, is looked at.

    Returns
    -------
    dict
        ``filesystem`` (its type), ``size_bytes``, ``free_bytes`` and
        ``rotational`` (``None`` where the kernel doesn't say).
    """
    directory = directory.resolve()
    while not directory.exists():
        directory = directory.parent
    usage = shutil.disk_usage(directory)
    return {
        "filesystem": _filesystem(directory),
        "size_bytes": usage.total,
        "free_bytes": usage.free,
        "rotational": _rotational(directory),
    }


def _filesystem(directory: Path) -> str:
    import psutil  # takes as long to import as all the rest of the command's help

    mounts = [
        partition
        for partition in psutil.disk_partitions(all=True)
        if directory.is_relative_to(partition.mountpoint)
    ]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else "unknown"


def _rotational(directory: Path) -> bool | None:
    device = directory.stat().st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    # A partition has no queue of its own: its disk, one level up, has.
    for queue in (block / "queue", block.resolve().parent / "queue"):
        try:
            return (queue / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None
