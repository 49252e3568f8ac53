"""The notebook about object stores, with an S3 server instead of a directory."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.live.objectstore.servers import KEY, SECRET, Gateway

from hepcache.objectstore import open_store

NOTEBOOK = Path(__file__).parents[3] / "notebooks/objects.ipynb"


@pytest.mark.timeout(600)
def test_only_the_uri_changes(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = gateway.uri(f"{tmp_path.name}/b2hhh")
    for name, value in {
        "HEPCACHE_EXAMPLE_URI": uri, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=300, startup_timeout=300, kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
    ).execute()  # fmt: skip
    printed = "".join(
        one.text for cell in notebook.cells for one in cell.get("outputs", []) if "text" in one
    )
    assert "ntpl+s3+http\n" in printed
    assert printed.count("candidates of 200,000 events") == 3
    assert len(list(open_store(uri).list(".pages/"))) > 0
