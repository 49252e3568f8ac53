"""Pages of the documentation: their Python examples do what they show."""

from __future__ import annotations

import doctest
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hepcache
from hepcache import errors

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if "```pycon" in page.read_text()]
BLOCK = re.compile(r"^```pycon\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def _here_again() -> Iterator[None]:
    here = Path.cwd()
    yield
    os.chdir(here)


@pytest.mark.usefixtures("_here_again")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page(page: Path) -> None:
    text = page.read_text()
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    names: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n")
        test = parser.get_doctest(block[1], names, page.name, str(page), line)
        runner.run(test, clear_globs=False)
        names = test.globs
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 0


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_has_its_place_in_troubleshooting(name: str) -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    assert f"\n## {name}\n" in page, f"say in docs/troubleshooting.md what to do about {name}"
    section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    builtin = next(
        one for one in getattr(errors, name).__mro__[1:] if one.__module__ == "builtins"
    )
    if name != "HepcacheError":
        assert f"`{builtin.__name__}`" in section
        assert f"hepcache.errors.{name}: " in section


def test_troubleshooting_knows_no_error_that_is_gone() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    known = re.findall(r"^## (\w+Error)$", page, re.MULTILINE)
    assert set(known) <= set(errors.__all__)


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    named = re.findall(r"^\.\. auto(?:class|function):: (hepcache[\w.]*)$", pages, re.MULTILINE)
    there = {name.rpartition(".")[2] for name in named}
    assert set(hepcache.__all__) <= there


def test_measured_tables_are_those_of_the_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    pages = importlib.import_module("pages")
    for page in DOCS.glob("*.md"):
        text = page.read_text()
        fresh = pages.measured_page(text, DOCS / "measured")
        assert text == fresh, f"python docs/pages.py writes the tables of {page.name} anew"
