"""The notebook about HTCondor, executed by a user on the submit host of the pool.

With ``HEPCACHE_RECORDED`` (``make recorded``) what it showed is kept in that directory.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest
from tests.notebooks.recorded import foreign_words, seal

from .conftest import WORKERS
from .lan import DOMAIN, PROGRAMS, REPOSITORY, USER, Lan

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

NOTEBOOK = REPOSITORY / "notebooks/htcondor.ipynb"


@pytest.fixture(scope="module")
def executed(lan: Lan) -> Any:
    """Return the notebook with all that it showed in the pool."""
    source, made = lan.home / "source.ipynb", lan.home / "executed.ipynb"
    source.write_bytes(NOTEBOOK.read_bytes())
    program = Path(__file__).with_name("execute.py")
    done = subprocess.run(
        lan.hosts["cm"].command(
            USER, f"{PROGRAMS}/python", str(program), f"/home/{USER}/{source.name}",
            f"/home/{USER}/{made.name}",
        ),
        capture_output=True, text=True, check=False, timeout=1000,
    )  # fmt: skip
    if done.returncode:
        logs = sorted((lan.home / "hepcache-htcondor/logs").glob("*"))
        told = "\n".join(f"--- {path.name}: {path.read_text()[-1500:]}" for path in logs)
        pytest.fail(f"{done.stdout[-2000:]}{done.stderr[-6000:]}\n{told}", pytrace=False)
    return nbformat.read(made, as_version=4)


def shown(notebook: Any, kind: str) -> str:
    """Return all that code cells show in one form; what they print is ``stream``."""
    outputs = [one for cell in notebook.cells for one in _outputs(cell)]
    if kind == "stream":
        return "".join(one.text for one in outputs if one.output_type == "stream")
    return "\n".join(one.data.get(kind, "") for one in outputs if "data" in one)


def _outputs(cell: Any) -> list[Any]:
    return list(cell.get("outputs", []))


def test_it_shows_script_pool_cycles_and_figure(executed: Any) -> None:
    script = shown(executed, "stream")
    assert "\nRequestCpus = " in script
    assert f"{PROGRAMS}/python" in script
    pages = shown(executed, "text/html")
    assert all(f"{name}.{DOMAIN}" in pages for name in WORKERS)
    assert "<svg" in pages
    assert "'events': 12000" in shown(executed, "text/plain")


def test_later_cycles_come_from_the_caches(executed: Any) -> None:
    (last,) = re.findall(r"^\[([\d., ]+)\]$", shown(executed, "text/plain"), re.MULTILINE)
    first, second, third = (float(one) for one in last.split(","))
    # A chunk may have been stolen: which host is free first is not for a test to say.
    assert max(second, third) < first / 2


def test_it_can_be_kept(executed: Any) -> None:
    seal(executed)
    _keep(executed, REPOSITORY / "out/notebooks")
    assert foreign_words(executed) == []
    assert "stderr" not in {one.get("name") for cell in executed.cells for one in _outputs(cell)}
    if directory := os.environ.get("HEPCACHE_RECORDED"):
        _keep(executed, Path(directory))


def _keep(notebook: Any, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, directory / NOTEBOOK.name)
