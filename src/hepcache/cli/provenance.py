"""What a run was started with, for its record."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hepcache.credentials import without_credentials

_GIT_S = 5.0  # that git is waited for, on a slow file system


def provenance(processor: str, arguments: Mapping[str, object]) -> dict[str, str]:
    """Return arguments of a processor, the command line, and the commit of the processor's file.

    ``processor``: as on the command line, such as FILE.py:NAME.
    What is not known is left out.
    """
    found = {"command": without_credentials(shlex.join(["hepcache", *sys.argv[1:]]))}
    if arguments:
        found["arguments"] = json.dumps(arguments, default=repr)
    path = Path(processor.rpartition(":")[0] or processor)
    commit = _commit(path.resolve().parent) if path.is_file() else ""
    return {**found, "commit": commit} if commit else found


def _commit(directory: Path) -> str:
    """Return the git commit of a directory, and whether files differ from it; "" without git."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "-C", str(directory), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_S, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    commit = done.removesuffix("-dirty")
    return commit if commit == done else f"{commit}, with changes that are not committed"
