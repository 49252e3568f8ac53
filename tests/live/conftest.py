"""What all live tests share: they skip where they can't run, but fail in CI."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from tests.live.network import Network

_ROOT = Path(__file__).parents[2]
CI = os.environ.get("CI", "").lower() == "true"


def unable(reason: str) -> NoReturn:
    """Skip with a reason; in CI nothing may be skipped, so fail."""
    if CI:
        pytest.fail(f"this machine can't run the test, and CI's must: {reason}", pytrace=False)
    pytest.skip(reason)


def install_packages(*packages: str, needs: str) -> None:
    """Install Debian packages unless a command is there already."""
    if shutil.which(needs):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        unable(f"there is no {needs}; as root, say: apt-get install {' '.join(packages)}")
    install = ["install", "-y", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _alone("apt"):
        # What was broken off would be in the way of all others.
        subprocess.run(["dpkg", "--configure", "-a"], env=environment, check=False,
                       capture_output=True)  # fmt: skip
        # The lists are read anew only where they name no such package, or an old one.
        for command in (install, ["update"], install):
            if shutil.which(needs):
                return
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *command],
                env=environment, capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
        if not shutil.which(needs):
            unable(f"apt-get install {' '.join(packages)} failed: {done.stderr[-400:]}")


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """Wait until no other test process of this machine does the same."""
    with Path(tempfile.gettempdir(), f"hepcache-live-{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install_wheels(environment: Path, *wanted: str, python: str = sys.executable) -> Path:
    """Return the directory of an environment's commands, made anew unless it has what is wanted.

    Parameters
    ----------
    environment
        Directory; it is kept from run to run.
    wanted
        Requirements, as pip takes them.
    python
        What makes the environment.
    """
    stamp, commands = environment / "installed.txt", environment / "bin"
    text = "".join(f"{one}\n" for one in wanted)
    if stamp.exists() and stamp.read_text() == text:
        return commands
    shutil.rmtree(environment, ignore_errors=True)
    # uv is much faster; where it can't reach the registry as pip does, pip does it.
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", commands / "python"]
    pip = [commands / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([python, "-m", "venv", environment], check=True)
    for command in (uv, pip):
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    else:
        unable(f"{' '.join(wanted)} can't be installed: {done.stderr[-400:]}")
    stamp.write_text(text)
    return commands


def unpack_source(name: str, release: str, directory: Path) -> Path:
    """Return a package's source distribution, unpacked below a directory, or skip.

    Parameters
    ----------
    name, release
        Of the package. ``HEPCACHE_SOURCES`` may name a directory that has the
        archive already; without it archives are kept from run to run.
    directory
        Receives what the archive holds.
    """
    kept = Path(os.environ.get("HEPCACHE_SOURCES") or _ROOT / "out/live/sources")
    pattern = f"{name.replace('-', '[-_]')}-{release}.tar.gz"
    with _alone("sources"):
        if not list(kept.glob(pattern)):
            # pip makes a package's metadata of it, which takes a while.
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            done = subprocess.run(
                [*download, "--no-binary", name, "--dest", kept, f"{name}=={release}"],
                capture_output=True, text=True, timeout=600, check=False,
            )  # fmt: skip
            if not list(kept.glob(pattern)):
                unable(f"the source of {name} {release} can't be had: {done.stderr[-400:]}")
        (found,) = kept.glob(pattern)
    with tarfile.open(found) as archive:
        archive.extractall(directory, filter="data")
    (unpacked,) = (path for path in directory.iterdir() if path.is_dir())
    return unpacked


def prepare_for_guests(tools: Mapping[str, str]) -> None:
    """See that Debian trees can be made here, and use this machine's Python.

    Parameters
    ----------
    tools
        Commands that are needed, and the packages that have them.
    """
    if os.geteuid() != 0:
        unable("needs root, to make a Debian tree and to run it")
    for tool, package in tools.items():
        install_packages(package, needs=tool)
    if sys.base_prefix == "/usr":
        unable("needs a Python outside of /usr that other distributions can use")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.live)
            if item.get_closest_marker("timeout") is None:
                # Another room may be installing what it needs just now.
                item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True, scope="session")
def _forked_workers() -> None:
    """Let workers start as a user's do."""


@pytest.fixture(scope="session")
def debian() -> Callable[..., None]:
    """Install Debian packages, or skip."""
    return install_packages


@pytest.fixture(scope="session")
def network(debian: Callable[..., None]) -> Iterator[Network]:
    """Namespaces that are joined by a switch; each has a link of its own to it."""
    if os.geteuid() != 0:
        unable("network namespaces and shaped links need root")
    debian("iproute2", needs="ip")
    with Network() as network:
        problem = network.check()
        if problem:
            unable(f"network namespaces or token buckets don't work here: {problem}")
        yield network
