"""Real object stores on this machine, and what the tests ask of them besides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.live.conftest import unable

from hepcache_bench.object_servers import (
    BUCKET,
    KEY,
    SECRET,
    Ceph,
    Daemon,
    Gateway,
    find_gateway,
    wait_for,
)

__all__ = [
    "BUCKET", "KEY", "SECRET", "Ceph", "Daemon", "Gateway", "gateway_program", "run_python",
    "wait_for",
]  # fmt: skip


def gateway_program() -> str:
    """Return versitygw, which Go builds where it isn't yet."""
    if found := find_gateway():
        return found
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        unable("there is neither versitygw nor a Go to build it with")
    asked = subprocess.run([go, "env", "GOPATH"], check=True, capture_output=True, text=True)
    program = Path(asked.stdout.strip(), "bin", "versitygw")
    if not program.exists():
        done = subprocess.run(
            [go, "install", "github.com/versity/versitygw/cmd/versitygw@latest"],
            capture_output=True, text=True, timeout=900, check=False,
            env={**os.environ, "GOBIN": str(program.parent)},
        )  # fmt: skip
        if done.returncode:
            unable(f"versitygw can't be built: {done.stderr[-400:]}")
    return str(program)


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start Python code whose lines of output can be waited for."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
