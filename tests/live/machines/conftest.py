"""A file server and a worker, configured by the project's own Ansible roles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..condor.conftest import refuse
from ..condor.lan import REPOSITORY, run
from .machine import VirtualMachine, build_image, build_software, free_port

TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client", "scp": "openssh-client", "ssh-keygen": "openssh-client",
}  # fmt: skip
PLAYBOOK = REPOSITORY / "deploy/ansible"
TAGS = "common,nfs,ssd,fscache,hepcache,monitoring"


@dataclass
class Facility:
    """Two machines and what configures them."""

    server: VirtualMachine
    worker: VirtualMachine
    play: Callable[..., str]


@pytest.fixture(scope="session")
def ansible() -> Path:
    """Return the directory of Ansible's commands, in an environment of their own."""
    environment = REPOSITORY / "out/live/ansible"
    wanted = PLAYBOOK / "requirements.txt"
    stamp = environment / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        shutil.rmtree(environment, ignore_errors=True)
        run(sys.executable, "-m", "venv", environment)
        run(environment / "bin/pip", "install", "--quiet", "-r", wanted)
        shutil.copy(wanted, stamp)
    return environment / "bin"


def in_ansible(commands: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of Ansible's commands where the playbook is."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE")}
    environment = {**kept, "PATH": f"{commands}:{os.environ['PATH']}", "NO_COLOR": "1",
                   "ANSIBLE_FORCE_COLOR": "0", "LC_ALL": "C.UTF-8"}  # fmt: skip
    return subprocess.run(
        [str(commands / arguments[0]), *arguments[1:]],
        cwd=PLAYBOOK, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def images() -> Path:
    """Return the directory of the images; packages that make and run them are installed."""
    if os.geteuid() != 0:
        refuse("needs root, to make images")
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        if shutil.which("apt-get") is None:
            refuse(f"needs {', '.join(missing)}, and there is no apt-get to install them")
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing)
    if sys.base_prefix == "/usr":
        refuse("needs a Python outside of /usr that other distributions' machines can use")
    directory = REPOSITORY / "out/live/machines"
    build_image(directory)
    return directory


@pytest.fixture(scope="session")
def facility(images: Path, ansible: Path) -> Iterator[Facility]:
    """Return the machines, up but with nothing configured."""
    state = Path(tempfile.mkdtemp(prefix="hepcache-machines-"))
    ssd, software = state / "ssd.img", build_software(images)
    with ssd.open("wb") as file:
        file.truncate(1 << 30)
    link = f"127.0.0.1:{free_port()}"
    server = VirtualMachine("server", "10.99.0.1/24", images, state, f"listen={link}")
    worker = VirtualMachine(
        "worker", "10.99.0.2/24", images, state, f"connect={link}",
        memory="3G", processors=2, disks=(software, ssd),
    )  # fmt: skip
    inventory = state / "inventory.yml"
    options = " ".join(server.ssh_options)
    inventory.write_text(f"""
all:
  vars:
    ansible_user: root
    ansible_host: 127.0.0.1
    ansible_ssh_common_args: "{options}"
    facility_domain: pool.test
    facility_manager: server
    facility_nfs_server: 10.99.0.1
    facility_network: 10.99.0.0/24
    common_refresh_packages: false
    common_time_service: ""
    hepcache_environment: {sys.prefix}
    hepcache_cache_mode: fscache
    ssd_cache_device: /dev/vdc
  children:
    service:
      hosts: {{}}
    nfs_servers:
      hosts:
        server:
          ansible_port: {server.port}
          nfs_server_threads: 4
    workers:
      hosts:
        worker:
          ansible_port: {worker.port}
""")

    def play(*more: str) -> str:
        done = in_ansible(
            ansible, "ansible-playbook", "-i", str(inventory), "--tags", TAGS, "site.yml", *more
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    try:
        server.start()
        worker.start()
        server.wait()
        worker.wait()
        worker.run(
            "mkdir -p /software && mount -o ro LABEL=software /software && "
            + " && ".join(
                f"mkdir -p {path} && mount --bind /software{path} {path}"
                for path in (sys.base_prefix, sys.prefix, REPOSITORY / "src")
            )
        )
        yield Facility(server, worker, play)
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
