"""What the documentation generates: the command line's reference, and measured tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rich.text import Text
from typer.main import get_command

from hepcache.bench.frame import benchmarks
from hepcache.cli.app import app
from hepcache.cli.bench import benchmark_command

__all__ = ["cli_page", "measured_page"]


def cli_page() -> str:
    """Return the reference of all commands, from the commands themselves."""
    lines = ["# Command line", "", "Every command has `--help`. [Exit codes](exit-codes.md)", ""]
    lines[2] += " are the same everywhere."
    return "\n".join([*lines, *_command(get_command(app), "hepcache", 1)]) + "\n"


def _command(command: Any, name: str, depth: int) -> list[str]:
    if name.startswith("hepcache bench ") and name.split()[-1] in benchmarks():
        command = benchmark_command(name.split()[-1])
    lines = [] if depth == 1 else [f"{'#' * depth} {name}", ""]
    lines += [_plain(command.help), ""]
    below = getattr(command, "commands", {})
    if not below:
        usage = " ".join(command.collect_usage_pieces(command.make_context(
            name, [], resilient_parsing=True)))  # fmt: skip
        lines += ["```text", f"{name} {usage}", "```", ""]
        lines += _options(command)
    for own, part in below.items():
        lines += _command(part, f"{name} {own}", min(depth + 1, 4))
    return lines


def _options(command: Any) -> list[str]:
    rows = []
    for one in command.params:
        if getattr(one, "hidden", False):
            continue
        names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
        if one.param_type_name == "argument":
            names = f"`{one.metavar or one.name.upper()}`"
        default = "" if one.default in (None, False, 0, ...) or one.required else f"{one.default}"
        rows.append(f"| {names} | {_cell(getattr(one, 'help', ''))} | {_cell(default)} |")
    return ["| option | meaning | default |", "|---|---|---|", *rows, ""] if rows else []


def _plain(text: str | None) -> str:
    """Return help text without marks of rich, as Markdown."""
    found = Text.from_markup((text or "").replace("\f", "")).plain
    return re.sub(r"(?<![\w`])(--[a-z][a-z-]*)", r"`\1`", found).strip()


def _cell(text: object) -> str:
    return " ".join(_plain(str(text or "")).split()).replace("|", "\\|").replace("<", "&lt;")


def measured_page(text: str, directory: Path) -> str:
    """Return a page in which NAME's table follows ``<!-- measured NAME -->``, and no other.

    ``directory``: of the measurements, and of ``words.json``, which says what each ratio is.
    """
    words = json.loads((directory / "words.json").read_text())

    def table(found: re.Match[str]) -> str:
        result = json.loads((directory / f"{found[1]}.json").read_text())
        if "pythons" in result:
            return "\n".join([found[0].split("\n")[0], "", *_pythons(result["pythons"])])
        lines = ["| what | measured | wanted | name |", "|---|---:|---|---|"]
        for name, value in result["ratios"].items():
            said = words[found[1]][name]
            wanted = said.get("wanted", "")
            lines.append(f"| {said['words']} | {_number(value)} | {wanted} | `{name}` |")
        return "\n".join([found[0].split("\n")[0], "", *lines])

    return re.sub(r"<!-- measured (\w+) -->(?:\n(?:\n\|.*)(?:\n\|.*)*)?", table, text)


def _number(value: float) -> str:
    """Return a number with three digits, and all of those before the point.

    >>> _number(0.94154), _number(24.9719), _number(334812.3), _number(1)
    ('0.942', '25.0', '334,812', '1')
    """
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = max(2 - int(f"{abs(value):e}".partition("e")[2]), 0)
    return f"{value:.{digits}f}"


def _pythons(tried: dict[str, dict[str, Any]]) -> list[str]:
    """Return a table of what tests/pythons.py has found."""
    sets = list(dict.fromkeys(kind for row in tried.values() for kind in row))
    return [
        f"| | {' | '.join(f'Python {version}' for version in tried)} |",
        f"|---|{'---|' * len(tried)}",
        *(
            f"| {kind} | {' | '.join(_tried(row.get(kind)) for row in tried.values())} |"
            for kind in sets
        ),
    ]


def _tried(cell: dict[str, Any] | None) -> str:
    if cell is None or "problem" in cell:
        return "not tried" if cell is None else cell["problem"]
    failed = len(cell["failed"])
    passes = f"{failed} of {cell['passed'] + failed} tests fail" if failed else "passes"
    return f"{passes}: coffea {cell['versions']['coffea']}, NumPy {cell['versions']['numpy']}"


if __name__ == "__main__":
    for path in Path(__file__).parent.glob("*.md"):
        text = path.read_text()
        if "<!-- measured " in text:
            path.write_text(measured_page(text, path.with_name("measured")))
