"""What help texts and documentation tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.main import get_command

from hepcache.cli.app import app

ROOT = Path(__file__).parents[2]


def epilogs(command: Any) -> Iterator[str]:
    yield command.epilog or ""
    for below in getattr(command, "commands", {}).values():
        yield from epilogs(below)


def examples() -> list[str]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL) for page in pages]
    texts = [*(text for page in blocks for text in page), *epilogs(get_command(app))]
    lines = {line.strip() for text in texts for line in text.splitlines()}
    # An option of hepcache itself, such as --install-completion, acts at once.
    return sorted(line for line in lines if re.match("hepcache [^-]", line))


@pytest.mark.parametrize("line", examples())
def test_an_example_is_a_command(line: str) -> None:
    # What the shell does with the output is not the command's.
    _, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
    command: Any = get_command(app)
    name = "hepcache"
    while hasattr(command, "commands"):
        # Benchmarks are imported when they are called for.
        name, command, arguments = command.resolve_command(Context(command), arguments)
    # It raises what it would print for a user.
    context = command.make_context(name, arguments)
    assert context.command is command
    assert not context.args
