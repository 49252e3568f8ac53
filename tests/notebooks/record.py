"""Execute notebooks here, and keep what they show.

``python -m tests.notebooks.record NAME ...``, which ``make recorded`` runs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from tests.notebooks.recorded import seal

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
_WIDGET = "application/vnd.jupyter.widget-view+json"


def record(path: Path) -> None:
    """Execute a notebook in place; nothing of it is kept if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as directory:
        own = {"TMPDIR": directory, "XDG_CACHE_HOME": directory, "IPYTHONDIR": directory}
        os.environ.update(own)
        NotebookClient(
            notebook, timeout=900, startup_timeout=300, kernel_name="python3",
            record_timing=False, resources={"metadata": {"path": str(path.parent)}},
        ).execute()  # fmt: skip
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [_cleaned(one, directory) for one in cell.outputs if _lasts(one)]
    # What the kernel's machine is, and the widgets of bars that have gone.
    for name in ("language_info", "widgets"):
        notebook.metadata.pop(name, None)
    notebook.metadata["language_info"] = {"name": "python"}
    seal(notebook)
    nbformat.write(notebook, path)


def _lasts(output: Any) -> bool:
    """Tell whether an output is still there when its cell has ended, as bars are not."""
    data = output.get("data", {"text/plain": output.get("text")})
    gone = _WIDGET in data or data.get("text/plain") == ""
    return not gone and output.get("name") != "stderr"


def _cleaned(output: Any, directory: str) -> Any:
    """Name directories that were made for this run without what is different each time."""
    chance = re.compile(re.escape(directory) + r"/(hepcache-[a-z0-9]+)-[a-z0-9_]{8}\b")
    if "text" in output:
        output.text = chance.sub(r"\1", output.text)
    for kind, text in output.get("data", {}).items():
        if isinstance(text, str) and kind != "image/png":
            output.data[kind] = chance.sub(r"\1", text)
    return output


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"notebooks/{name}.ipynb", flush=True)
        record(NOTEBOOKS / f"{name}.ipynb")
