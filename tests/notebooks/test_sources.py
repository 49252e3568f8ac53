"""Notebooks are kept with what they show, so that a visitor of the repository sees it.

``make docs`` executes them anew. Here the outputs belong to the code beside them, and tell of
nothing but the analysis.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from tests.notebooks.recorded import foreign_words, sources_digest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LARGEST_BYTES = 300_000


def test_there_are_notebooks() -> None:
    assert "quickstart" in {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    assert notebook.cells[0].source.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_code_does_and_nothing_of_a_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    found = notebook.metadata.get("hepcache", {}).get("recorded")
    assert found == sources_digest(notebook), "the code has changed: make recorded"
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [one for cell in cells for one in cell.outputs]
    assert {"error", "stderr"}.isdisjoint({one.get("name", one.output_type) for one in outputs})
    shown = {kind for one in outputs for kind in one.get("data", {})}
    assert "image/png" in shown or "<svg" in path.read_text(), "it has no picture"
    assert foreign_words(notebook) == []
    assert path.stat().st_size < LARGEST_BYTES


def test_a_changed_cell_and_words_of_a_machine_are_found() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])
    before = sources_digest(notebook)
    notebook.cells[0].source = "1 + 2"
    assert sources_digest(notebook) != before
    for text in ("/tmp/x/y", "2026-11-24 07:00", "at 07:31:02", "8.8.8.8", "/home/somebody"):
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text=text)]
        assert foreign_words(notebook), text
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="0:00:01, 127.0.0.1:80")]
    assert foreign_words(notebook) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_links_lead_somewhere(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    # The documentation shows them elsewhere, so only links among themselves hold.
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert "/" not in target
        assert (path.parent / target).is_file(), target
