"""The notebook about HTCondor, executed by a user on the submit host of the pool."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from .conftest import WORKERS
from .lan import DOMAIN, REPOSITORY, USER, Lan

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

NOTEBOOK = REPOSITORY / "notebooks/htcondor.ipynb"


@pytest.fixture(scope="module")
def executed(lan: Lan) -> Any:
    made = lan.home / "executed.ipynb"
    python = str(Path(sys.prefix) / "bin/python")
    program = str(Path(__file__).with_name("execute.py"))
    done = subprocess.run(
        lan.hosts["cm"].command(
            USER, python, program, str(NOTEBOOK), f"/home/{USER}/{made.name}"
        ),
        capture_output=True, text=True, check=False, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return nbformat.read(made, as_version=4)


def outputs(notebook: Any) -> list[Any]:
    return [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]


def test_it_shows_script_pool_report_and_no_incident(executed: Any) -> None:
    found = outputs(executed)
    texts = "".join(one.get("text", "") for one in found)
    assert "RequestCpus = 1" in texts or "request_cpus = 1" in texts.lower()
    pages = "".join(one.get("data", {}).get("text/html", "") for one in found)
    assert all(f"{name}.{DOMAIN}" in pages for name in WORKERS)
    assert "<svg" in pages
    plain = "".join(one.get("data", {}).get("text/plain", "") for one in found)
    assert "'events': 12000" in plain


def test_it_can_be_kept_for_the_documentation(executed: Any) -> None:
    """Nothing of the machine is in it; with HEPCACHE_RECORDED it goes to that directory."""
    for cell in executed.cells:
        cell.metadata.pop("execution", None)
    text = nbformat.writes(executed)
    for own in {sys.prefix, str(REPOSITORY), sys.base_prefix}:
        text = text.replace(own, "/opt/hepcache")
    text = re.sub(r"10\.\d+\.\d+\.(\d+)", r"10.1.1.\1", text)
    assert str(REPOSITORY) not in text
    for directory in (os.environ.get("HEPCACHE_RECORDED"), REPOSITORY / "out/notebooks"):
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            (Path(directory) / NOTEBOOK.name).write_text(f"{text}\n")
