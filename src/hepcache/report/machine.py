"""The software and the machine of a measurement."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hepcache.fscache import mount_below
from hepcache.io.threads import usable_cores

_PACKAGES = ("hepcache", "coffea", "uproot", "awkward", "dask", "distributed", "numpy")


def versions() -> dict[str, str]:
    """Return the versions of hepcache, Python and the packages that do the reading."""
    return {**_package_versions(), "python": platform.python_version()}


@cache
def _package_versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """Describe this machine: cores that this process may use, memory, processor, kernel, storage.

    The storage is that of the temporary directory. There is no host name:
    reports are passed on.
    """
    return {
        "cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "system": platform.system(),
        "storage": storage(Path(tempfile.gettempdir())),
    }


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

    ``rotational`` is ``None`` where the kernel doesn't say.
    """
    directory = directory.resolve()
    while not directory.exists():
        directory = directory.parent
    usage = shutil.disk_usage(directory)
    mount = mount_below(directory)
    return {
        "filesystem": mount.filesystem if mount else "unknown",
        "size_bytes": usage.total,
        "free_bytes": usage.free,
        "rotational": _rotational(directory),
    }


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
