"""What all live tests share: they skip where they can't run, but fail in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest
from tests.live.network import Network

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
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", *command], env=environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
    if not shutil.which(needs):
        unable(f"apt-get install {' '.join(packages)} failed: {done.stderr[-400:]}")


def unpack_source(name: str, release: str, directory: Path) -> Path:
    """Return a package's source distribution, unpacked below a directory, or skip.

    Parameters
    ----------
    name, release
        Of the package. ``HEPCACHE_SOURCES`` may name a directory that has the
        archive already.
    directory
        Receives the archive and what it holds.
    """
    kept = os.environ.get("HEPCACHE_SOURCES", "")
    found = list(Path(kept).glob(f"{name.replace('-', '[-_]')}-{release}.tar.gz")) if kept else []
    if not found:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary",
                name,
                "--dest",
                directory,
                f"{name}=={release}",
            ],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        found = list(directory.glob("*.tar.gz"))
        if not found:
            unable(f"the source of {name} {release} can't be had: {done.stderr[-400:]}")
    with tarfile.open(found[0]) as archive:
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
