"""Every notebook runs from its first cell to its last, and shows what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
POOL = {"htcondor"}  # these run in a pool: tests/live/condor
NOTEBOOKS = [
    path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if path.stem not in POOL
]


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Any:
    path: Path = request.param
    for name in ("XDG_CACHE_HOME", "TMPDIR", "IPYTHONDIR"):
        directory = tmp_path / name.lower()
        directory.mkdir()
        monkeypatch.setenv(name, str(directory))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=300, startup_timeout=300, kernel_name="python3", resources=resources
    ).execute()
    kept = ROOT / "out/notebooks" / path.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, kept)
    return notebook


@pytest.mark.timeout(600)
@pytest.mark.parametrize("executed", NOTEBOOKS, ids=lambda path: path.stem, indirect=True)
def test_a_notebook_runs_and_makes_a_figure(executed: Any) -> None:
    outputs = [
        output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    pages = [output.data.get("text/html", "") for output in outputs if "data" in output]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert pictures or any("<svg" in page for page in pages)
    assert [one.text for one in outputs if one.get("name") == "stderr"] == []
