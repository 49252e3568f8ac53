"""Notebooks are kept without outputs, so that a change of one can be read; CI executes them.

What only a pool can show is kept as it was recorded there (``make recorded``).
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from tests.notebooks.recorded import foreign_words, sources_digest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
RECORDED = {"htcondor"}


def test_there_are_notebooks() -> None:
    assert "quickstart" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_outputs_only_if_recorded(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert notebook.cells[0].source.startswith("# ")
    for cell in notebook.cells:
        if cell.cell_type == "code" and path.stem not in RECORDED:
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_record_belongs_to_its_code_and_tells_nothing_of_a_machine(name: str) -> None:
    path = next(path for path in NOTEBOOKS if path.stem == name)
    notebook = nbformat.read(path, as_version=4)
    found = notebook.metadata["hepcache"]["recorded"]
    assert found == sources_digest(notebook), "the code has changed: make recorded"
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert "<svg" in path.read_text()
    assert foreign_words(notebook) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_links_lead_somewhere(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    # The documentation shows them elsewhere, so only links among themselves hold.
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert "/" not in target
        assert (path.parent / target).is_file(), target
