"""Links of everything that is written: where they lead is there, or has the form of an address.

Links lead somewhere in the repository as it is, and in the documentation that is made of it.
``make docs`` checks links between pages once more. It sees neither README nor other files
outside of ``docs``, and takes any address of other sites.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
MADE = {"build", "dist", "out"}
COPIED = ("docs/_build", "docs/cli.md", "docs/notebooks")  # made by docs/conf.py
LINK = re.compile(r"\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\(<?([^)\s>]+)>?\)")
HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}")


def written() -> Iterator[Path]:
    for below in sorted(ROOT.iterdir()):
        if below.name.startswith(".") or below.name in MADE:
            continue
        found = below.rglob("*") if below.is_dir() else [below]
        for path in sorted(one for one in found if one.suffix in {".md", ".ipynb"}):
            if not any(str(path.relative_to(ROOT)).startswith(one) for one in COPIED):
                yield path


def prose(path: Path) -> str:
    """Return a file's text without code, in which brackets mean something else."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join(
            "".join(one["source"]) for one in cells if one["cell_type"] == "markdown"
        )
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path: Path) -> set[str]:
    """Return the names of a page's sections as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)
    names = (re.sub(r"[^\w\- ]", "", one.strip().lower()).replace(" ", "-") for one in found)
    return {*names, *re.findall(r"^\((.+)\)=$", text, re.MULTILINE)}


def wrong(path: Path, link: str) -> str:
    """Return what is wrong with a link in a file; nothing if it is right."""
    address = urlsplit(link)
    if address.scheme:
        formed = address.scheme in {"https", "mailto"} and HOST.fullmatch(address.hostname or "")
        return "" if formed else "not an https:// address of a site"
    if not address.path:
        return "" if address.fragment in anchors(path) else "no such section"
    target = (path.parent / address.path).resolve()
    # What only building the documentation makes is not there for who reads the repository.
    if not target.exists() or str(target.relative_to(ROOT)).startswith(COPIED):
        return "no such file"
    if address.fragment and address.fragment not in anchors(target):
        return "no such section"
    return ""


@pytest.mark.parametrize("path", list(written()), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    found = {link: wrong(path, link) for link in LINK.findall(prose(path))}
    assert not {link: reason for link, reason in found.items() if reason}


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("nowhere.md", "no such file"),
        ("images/nothing.png", "no such file"),
        ("why.md#not-there", "no such section"),
        ("#not-there", "no such section"),
        ("http://example.org/", "not an https:// address of a site"),
        ("https://example/x", "not an https:// address of a site"),
        ("https:/example.org", "not an https:// address of a site"),
        ("tutorial.md#1-look-at-it", ""),
        ("https://example.org/a#b", ""),
        ("../notebooks/quickstart.ipynb", ""),
        ("notebooks/quickstart.ipynb", "no such file"),
        ("cli.md", "no such file"),
    ],
)
def test_a_wrong_link_is_found(link: str, reason: str) -> None:
    assert wrong(ROOT / "docs/index.md", link) == reason
    assert LINK.findall(f"see [the `x` page]({link}).") == [link]
