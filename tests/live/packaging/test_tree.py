"""One environment for many machines: built here, moved, mounted read-only, and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.conftest import unable

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "deploy/environment/build-tree"
USE = """
set -e
mount --make-rprivate /
mkdir "$2" && mount --bind "$1" "$2" && mount -o remount,ro,bind "$2"
! touch "$2/bin/written" 2> /dev/null
mount -t tmpfs tmpfs "$1" # nothing of it is used where it was built
"$2/bin/hepcache" --version
"$2/bin/python" -c 'import hepcache; print(hepcache.HTCondorCluster, hepcache.__file__)'
"$2/bin/dask" --version
"$2/bin/hepcache" demo --events 2000 --cycles 2 --out demo
"""


@pytest.mark.timeout(900)
def test_a_tree_is_used_read_only_elsewhere_than_it_was_built(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        unable("needs root, to mount a tree read-only")
    built, served = tmp_path / "built", tmp_path / "served"
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    done = subprocess.run([BUILD, built, python], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["built"]
    again = subprocess.run([BUILD, built, python], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    used = subprocess.run(
        ["unshare", "--mount", "bash", "-c", USE, "use", built, served],
        cwd=tmp_path, env=kept, capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run(["chmod", "-R", "u+w", built], check=True)
    assert used.returncode == 0, used.stdout + used.stderr
    assert str(served) in used.stdout
    assert (tmp_path / "demo/report.html").stat().st_size > 10_000
