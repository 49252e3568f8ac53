"""The roles that install from a package index, on a Debian tree: they need no kernel of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..condor.lan import REPOSITORY
from .conftest import PLAYBOOK, recap

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

TAGS = "environment,hepcache,jupyter"
# How this machine reaches the index, whatever that is.
NETWORK = ("/etc/resolv.conf", "/etc/ssl/certs", "/etc/pip.conf", os.environ.get("PIP_FIND_LINKS"))


def test_environment_and_notebooks(images: Path, ansible: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "inventory.yml").write_text("""
all:
  vars:
    ansible_connection: local
    environment_python: /usr/bin/python3
    facility_domain: pool.test
    facility_manager: localhost
    facility_nfs_server: localhost
    facility_network: 10.99.0.0/24
  children:
    service:
      hosts:
        localhost: {}
    workers: {}
    nfs_servers: {}
""")
    bound = [sys.base_prefix, str(REPOSITORY), *(one for one in NETWORK if one)]
    values = {"TREE": images / "tree", "BIND": " ".join(bound), "ANSIBLE": ansible,
              "PLAYBOOK": PLAYBOOK, "TAGS": TAGS}  # fmt: skip
    (tmp_path / "env").write_text("".join(f"{key}='{value}'\n" for key, value in values.items()))
    done = subprocess.run(
        ["unshare", "--mount", "bash", Path(__file__).with_name("environment.sh"), tmp_path],
        env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    first, second = (recap("PLAY RECAP" + part) for part in done.stdout.split("PLAY RECAP")[1:])
    assert first["localhost"]["changed"] > 0
    assert (second["localhost"]["changed"], second["localhost"]["failed"]) == (0, 0)
    last = done.stdout.rpartition("PLAY RECAP")[2]
    assert "Python 3.13" in last  # Debian's own, as on the machines of a facility
    assert "hepcache 0." in last
    assert "dask-labextension" in last
    # Nothing that only developers need.
    installed = last.partition("Package ")[2].split()
    assert {"dask", "h5py", "htcondor"} <= set(installed)
    assert not {"pytest", "sphinx", "mypy", "ruff"} & set(installed)
