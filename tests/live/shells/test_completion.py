"""Completion as `hepcache --install-completion` sets it up, in real shells on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

PROGRAMS = Path(sys.executable).parent


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(
    shell: str, debian: Callable[..., None], tmp_path: Path
) -> None:
    debian(shell, needs=shell)
    environment = {
        "HOME": str(tmp_path), "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TERM": "xterm",
        "LANG": "C.UTF-8",
    }  # fmt: skip
    # typer looks which shell it was started from; a last command would take that one's place.
    install = [shell, "-c", "hepcache --install-completion; true"]
    done = subprocess.run(
        install, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert f"{shell} completion installed in {tmp_path}" in done.stdout

    terminal = pexpect.spawn(
        shell, ["-i"], env=environment, encoding="utf-8", timeout=90, dimensions=(50, 200)
    )
    try:
        # The prompt's end can't be told apart from what starts up before it; this answer can.
        terminal.sendline("echo $((40 + 2))" if shell != "fish" else "math 40 + 2")
        terminal.expect("42")
        if shell == "zsh":  # where the first try of a session only loads what typer wrote
            terminal.send("hepcache \t")
            terminal.expect("\x07")
        terminal.send("\x15hepcache catal\t")
        terminal.expect("ogue")
        terminal.send("\x15hepcache cache ver\t")
        terminal.expect("ify")
        terminal.send("\x15hepcache run --proc\t")
        terminal.expect("essor-args")
    finally:
        terminal.close(force=True)
