"""Cards and reports in a real Chromium: words don't cover each other, and can be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from tests.live.dashboard.browser import chromium

from hepcache.cache import ColumnCache
from hepcache.clusters import LocalCluster
from hepcache.fileset import load_fileset
from hepcache.placement import Residency, place
from hepcache.placement.identity import JobIdentity
from hepcache.report import CycleReport, RunRecord

GOLDEN = Path(__file__).parents[2] / "report/golden/run-v1.json"

# What JupyterLab's notebooks say of any HTML that is shown in them.
NOTEBOOK = """
.shown dl { width: 100%; overflow: hidden; padding: 0; margin: 0 }
.shown dl, .shown dt, .shown dd { display: block }
.shown dt { font-weight: bold; float: left; width: 20%; padding: 0; margin: 0 }
.shown dd { float: left; width: 80%; padding: 0; margin: 0 }
.shown table { table-layout: fixed; margin-left: auto; margin-right: auto }
.shown tbody tr:nth-child(odd) { background: var(--stripe) }
.shown a { color: inherit }
.shown:not(.markdown) td, .shown:not(.markdown) th { text-align: right }
"""
_LIGHT = "background: #fff; color: #111; --stripe: #f5f5f5"
_DARK = "background: #111; color: #eee; --stripe: #222"
# Pairs of texts that cover each other, and texts that stand out too little from what is
# behind them (WCAG 2.1, success criterion 1.4.3: 4.5 to 1; words at half opacity count as such).
LOOK = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const shade = (rgb) => { const [r, g, b] = rgb.slice(0, 3).map((one) => {
  one /= 255; return one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (node) => { for (; node; node = node.parentElement) {
  const found = parse(getComputedStyle(node).backgroundColor);
  if (found.length === 3 || found[3] > 0.5) return found; } return [255, 255, 255]; };
const opacity = (node) => { let all = 1; for (; node; node = node.parentElement)
  all *= Number(getComputedStyle(node).opacity); return all; };
const found = [], pale = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.textContent.trim() || parent.closest('style, script, svg')) continue;
  const range = document.createRange(); range.selectNodeContents(node);
  const back = behind(parent), seen = opacity(parent);
  const front = parse(getComputedStyle(parent).color).slice(0, 3)
    .map((one, at) => one * seen + back[at] * (1 - seen));
  const [low, high] = [shade(front), shade(back)].sort((a, b) => a - b);
  if ((high + 0.05) / (low + 0.05) < 4.5) pale.push(node.textContent.trim());
  for (const box of range.getClientRects()) found.push([node.textContent.trim(), box]);
}
const covered = [];
found.forEach(([one, a], at) => found.slice(at + 1).forEach(([other, b]) => {
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  if (wide > 2 && high > 4) covered.push([one, other]); }));
return {texts: found.length, pale, covered,
        wider: document.documentElement.scrollWidth - innerWidth};
"""


@pytest.fixture(scope="module")
def browser(
    debian: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    debian("chromium", "chromium-driver", needs="chromedriver")
    driver = str(shutil.which("chromedriver"))
    directory = tmp_path_factory.mktemp("profile")
    with chromium(directory, driver=driver, size=(1100, 900)) as made:
        yield made


@pytest.fixture(scope="module")
def report() -> CycleReport:
    record = RunRecord.read(GOLDEN)
    return CycleReport((record, record, record), "Three cycles")


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory, report: CycleReport) -> str:
    directory = tmp_path_factory.mktemp("cards")
    cache = ColumnCache(directory / "cache", capacity_bytes=2_000_000_000)
    jobs = [JobIdentity(str(number), "Events", 0) for number in range(50)]
    with LocalCluster(hosts=2, cache_directory=directory / "caches") as cluster:
        shown = [cluster._repr_html_()]
    shown += [
        load_fileset({"HH": ["a.root"], "TT": ["b.root"]}, treename="Events")._repr_html_(),
        place(jobs, {"one": 1.0, "two": 2.0}, residency=Residency())._repr_html_(),
        cache._repr_html_(), report._repr_html_(), report.explain(cycle=1)._repr_html_(),
    ]  # fmt: skip
    cache.close()
    return "".join(f"<div class='shown'>{one}</div>" for one in shown)


def look(browser: Chrome, path: Path, *, dark: bool, width: int) -> dict[str, Any]:
    """Open a file in one colour scheme, and return what is wrong with it."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())
    found: dict[str, Any] = browser.execute_script(LOOK)
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_cards_can_be_read_in_a_notebook(
    browser: Chrome, cards: str, tmp_path: Path, *, dark: bool
) -> None:
    page = tmp_path / "cards.html"
    colours = _DARK if dark else _LIGHT
    page.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{NOTEBOOK} body {{ {colours} }}</style>"
        f"<body data-jp-theme-light='{str(not dark).lower()}'>{cards}"
    )
    # The reader's system may ask for the other scheme: the notebook's own counts.
    found = look(browser, page, dark=not dark, width=1100)
    assert found["texts"] > 100
    assert (found["covered"], found["pale"]) == ([], [])


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_report_can_be_read(
    browser: Chrome, report: CycleReport, tmp_path: Path, *, dark: bool, width: int
) -> None:
    found = look(browser, report.to_html(tmp_path / "report.html"), dark=dark, width=width)
    assert found["texts"] > 100
    assert (found["covered"], found["pale"], found["wider"]) == ([], [], 0)
