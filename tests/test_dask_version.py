"""What `import hepcache` says where pip has replaced Dask alone, as it does for dask-awkward."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest


def said(directory: Path) -> str:
    """Return what importing hepcache prints where packages of a directory are found first."""
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import hepcache"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize(("dask", "warned"), [("2025.3.1", True), (version("dask"), False)])
def test_dask_and_distributed_must_belong_together(
    dask: str, warned: bool, tmp_path: Path
) -> None:
    metadata = tmp_path / f"dask-{dask}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dask\nVersion: {dask}\n")
    text = said(tmp_path)
    assert ("UserWarning" in text) is warned
    if warned:
        assert f"dask {dask} and distributed {version('distributed')} are installed" in text
        assert "pip uninstall --yes dask-awkward" in text
        assert "pip install --upgrade dask distributed" in text
