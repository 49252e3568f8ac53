"""A file server and a worker, configured by the project's own Ansible roles."""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.live.conftest import install_wheels, prepare_for_guests

from hepcache.samples.nanoaod import write_nanoaod
from hepcache_bench.ports import free_port

from ..condor.lan import REPOSITORY
from .image import build_image, build_software
from .machine import VirtualMachine

COLUMNS = ("Muon_pt", "Muon_eta", "PuppiMET_pt")
GUEST_READ = Path(__file__).with_name("guest_read.py")
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client", "ssh-keygen": "openssh-client",
}  # fmt: skip
PLAYBOOK = REPOSITORY / "deploy/ansible"
# test_environment.py runs the other two, which need a package index: the machines reach none.
TAGS = "common,nfs,ssd,fscache,condor,hepcache,monitoring"
# Keeps one Python in a guest for all tasks; emulated, each one's own would take eight seconds.
MITOGEN = "mitogen==0.3.54"


@dataclass
class Facility:
    """Two machines, a file that the server has, and what configures the machines."""

    server: VirtualMachine
    worker: VirtualMachine
    sample: Path
    play: Callable[..., str]


@pytest.fixture(scope="session")
def ansible() -> Path:
    """Return the directory of Ansible's commands, in an environment of their own."""
    lines = (PLAYBOOK / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    return install_wheels(REPOSITORY / "out/live/ansible", *wanted, MITOGEN)


def in_ansible(
    commands: Path, *arguments: str, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's commands where the playbook is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE")}
    environment = {**kept, "PATH": f"{commands}:{os.environ['PATH']}", "NO_COLOR": "1",
                   "ANSIBLE_FORCE_COLOR": "0", "LC_ALL": "C.UTF-8", **(extra or {})}  # fmt: skip
    return subprocess.run(
        [str(commands / arguments[0]), *arguments[1:]],
        cwd=PLAYBOOK, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def images() -> Path:
    """Return the directory of the images; packages that make and run them are installed."""
    prepare_for_guests(TOOLS)
    directory = REPOSITORY / "out/live/machines"
    build_image(directory)
    return directory


def inventory(server: VirtualMachine, worker: VirtualMachine) -> str:
    """Return the facility's inventory; the server is its service node, too."""
    return f"""
all:
  vars:
    ansible_user: root
    ansible_host: 127.0.0.1
    ansible_ssh_common_args: "{" ".join(server.ssh_options)}"
    facility_domain: pool.test
    facility_manager: server.pool.test
    facility_nfs_server: 10.99.0.1
    facility_network: 10.99.0.0/24
    common_refresh_packages: false
    common_time_service: ""
    condor_network_interface: 10.99.0.*
    condor_pool_key: {base64.b64encode(secrets.token_bytes(64)).decode()}
    hepcache_environment: {sys.prefix}
    monitoring_interval: 1h
    hepcache_cache_mode: fscache
    ssd_cache_device: /dev/vdc
  children:
    service:
      hosts:
        server:
          ansible_port: {server.port}
          condor_roles: [manager, submit]
          nfs_server_threads: 4
    nfs_servers:
      hosts:
        server: {{}}
    workers:
      hosts:
        worker:
          ansible_port: {worker.port}
"""


def mount_software() -> str:
    """Return the command that puts hepcache where it is on this machine."""
    places = (sys.base_prefix, sys.prefix, REPOSITORY / "src", REPOSITORY / "benchmarks")
    binds = [f"mkdir -p {one} && mount --bind /software{one} {one}" for one in places]
    return " && ".join(["mkdir -p /software", "mount -o ro LABEL=software /software", *binds])


@pytest.fixture(scope="module")
def facility(images: Path, ansible: Path) -> Iterator[Facility]:
    """Return the machines, up but with nothing configured."""
    state = Path(tempfile.mkdtemp(prefix="hepcache-machines-"))
    software, ssd = state / "software.img", state / "ssd.img"
    with ssd.open("wb") as file:
        file.truncate(1 << 30)
    port = free_port()
    server = VirtualMachine(
        "server", "10.99.0.1/24", images, state, f"listen=127.0.0.1:{port}", disks=(software,)
    )
    worker = VirtualMachine(
        "worker", "10.99.0.2/24", images, state, f"connect=127.0.0.1:{port}",
        memory="3G", disks=(software, ssd),
    )  # fmt: skip
    listed = state / "inventory.yml"
    listed.write_text(inventory(server, worker))
    plugins = next(ansible.parent.glob("lib/python3*/site-packages/ansible_mitogen"))
    emulated = {
        "ANSIBLE_STRATEGY": "mitogen_linear", "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_STRATEGY_PLUGINS": str(plugins / "plugins/strategy"), "ANSIBLE_TIMEOUT": "60",
    }  # fmt: skip

    def play(*more: str) -> str:
        done = in_ansible(
            ansible, "ansible-playbook", "-i", str(listed), "--tags", TAGS, "site.yml", *more,
            extra=emulated,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    try:
        (sample,) = write_nanoaod(
            state / "sample", events=4000, files=1, compression="zstd:1", cluster=2000
        )
        build_software(software, GUEST_READ, str(sample), "fscache", *COLUMNS)
        server.start()
        worker.start()
        for one in (server, worker):
            one.wait()
            one.run(mount_software())
        yield Facility(server, worker, sample, play)
    finally:
        worker.end()
        server.end()
        shutil.rmtree(state, ignore_errors=True)


def recap(output: str) -> dict[str, dict[str, int]]:
    """Return what Ansible says in the end: machine to its counts."""
    found = {}
    for line in output.partition("PLAY RECAP")[2].splitlines():
        name, colon, counts = line.partition(":")
        if colon:
            pairs = re.findall(r"(\w+)=(\d+)", counts)
            found[name.strip()] = {key: int(value) for key, value in pairs}
    return found
