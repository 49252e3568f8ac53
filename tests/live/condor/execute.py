"""Runs on the submit host as the user: execute a notebook, and keep what it shows."""

from __future__ import annotations

import sys

import nbformat
from nbclient import NotebookClient


def main(source: str, target: str) -> None:
    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(
        notebook, timeout=700, startup_timeout=300, kernel_name="python3", record_timing=False
    )
    try:
        client.execute()
    finally:
        nbformat.write(notebook, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
