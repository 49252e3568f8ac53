"""Ansible in an environment of its own, and the playbook it plays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..condor.lan import REPOSITORY, run

PLAYBOOK = REPOSITORY / "deploy/ansible"


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
