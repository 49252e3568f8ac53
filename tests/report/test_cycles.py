from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from hepcache.errors import RecordError
from hepcache.report import CycleReport
from hepcache.report.html import fragment, page
from hepcache.report.plots import FIGURES, rendered
from hepcache.report.table import host_table
from hepcache.report.theme import DARK, LIGHT, SENTINEL, Theme

TIMES = "\N{MULTIPLICATION SIGN}"


class Page(HTMLParser):
    """Collects what a test asks of a page; complains of tags that don't close."""

    void = frozenset(("meta", "br", "path", "use", "image", "rect", "line", "hr", "circle"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in self.void:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "action"):
                self.links.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data.strip())


def test_a_report_survives_its_file(tmp_path, report):
    path = report.to_json(tmp_path / "report.json")
    again = CycleReport.read(path)
    assert again.to_dict() == report.to_dict()
    data = json.loads(path.read_text())
    assert [one["hit_ratio"] for one in data["summaries"]] == [0.0, 0.5, 1.0]


def test_a_single_run_is_a_report_too(tmp_path, report):
    path = report.records[0].write(tmp_path / "run.json")
    assert CycleReport.read(path).records[0].to_dict() == report.records[0].to_dict()


@pytest.mark.parametrize("data", [{}, {"schema": "hepcache.report", "version": 1}])
def test_anything_else_is_refused(data):
    with pytest.raises(RecordError):
        CycleReport.from_dict(data)


def test_speed_ups_are_those_over_the_first(report):
    assert report.speed_ups == pytest.approx((1.0, 2 / 1.2, 10.0))
    assert len(report) == 3
    assert report[1] is report.records[1]


@pytest.mark.parametrize("make", [page, fragment])
def test_a_page_needs_nothing_else(report, make):
    text = make(report)
    found = Page(text)
    assert all(link.startswith("#") for link in found.links)
    assert not re.search(r"@import|<script|<link", text)
    # Addresses are names of namespaces only, never fetched.
    assert set(re.findall(r"https?://[^\"' )]*", text)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    }  # fmt: skip


@pytest.mark.parametrize("make", [page, fragment])
def test_identifiers_are_unique_and_references_lead_to_them(report, make):
    text = make(report)
    found = Page(text)
    assert [name for name, count in Counter(found.ids).items() if count > 1] == []
    wanted = {link[1:] for link in found.links} | set(re.findall(r"url\(#([^)]*)\)", text))
    assert wanted
    assert wanted <= set(found.ids)


def test_the_page_shows_the_numbers_and_escapes_words(report):
    words = Page(page(report)).words
    assert "Three <cycles>" in words
    assert "Three <cycles>" not in page(report)
    for expected in (f"10.0{TIMES}", "50.0 %", "1.50 kB", "stolen", "host-1", "What to change"):
        assert expected in words


def test_the_page_is_light_and_dark(report):
    text = page(report)
    dark = text.split("@media (prefers-color-scheme: dark)")[1].split("@media")[0]
    assert LIGHT.cache in text.split("@media")[0]
    assert DARK.cache in dark
    for role in Theme.__slots__:
        assert getattr(SENTINEL, role) not in text
    assert "var(--hc-origin)" in text


def test_skipped_files_are_on_the_page(make_record, make_chunk):
    record = make_record(make_chunk(), problems={"/bad.root": "it is <truncated>"})
    words = Page(page(CycleReport((record,)))).words
    assert {"Skipped files", "/bad.root", "it is <truncated>"} <= set(words)


def test_a_report_without_cycles_can_be_shown():
    empty = CycleReport(())
    assert "No cycle has run yet." in page(empty)
    assert "hepcache" in empty._repr_html_()
    assert repr(empty).startswith("Cycles")
    assert empty.advice == ()
    for figure in FIGURES.values():
        assert rendered(figure(empty), "png").startswith(b"\x89PNG")


def test_a_page_is_the_same_each_time(report):
    assert page(report) == page(report)


def test_figures_are_written_in_every_format(tmp_path, report):
    paths = report.to_figures(tmp_path / "figures", formats=("png", "pdf", "svg"))
    assert {path.name for path in paths} == {
        f"{name}.{suffix}" for name in FIGURES for suffix in ("png", "pdf", "svg")
    }
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == {".png": b"\x89PNG\r", ".pdf": b"%PDF-", ".svg": b"<?xml"}[path.suffix]


def test_the_figure_of_cycles_has_the_published_content(report):
    top, bottom = FIGURES["cycles"](report).axes
    walls, (origin, cache) = top.containers[0], bottom.containers
    assert [bar.get_height() for bar in walls] == [2.0, 1.2, 0.2]
    assert [text.get_text() for text in top.texts] == [
        f"{ratio}{TIMES}" for ratio in ("1.0", "1.7", "10.0")
    ]
    assert [bar.get_height() for bar in origin] == [3.0, 1.5, 0.0]
    assert [bar.get_height() for bar in cache] == [0.0, 3.0, 6.0]
    assert bottom.get_ylabel() == "read / kB"


def test_parts_of_the_time_add_up_to_one(report):
    (axes,) = FIGURES["time"](report).axes
    for cycle in range(3):
        assert sum(bars[cycle].get_height() for bars in axes.containers) == pytest.approx(1)


def test_the_table_fits_a_terminal(report):
    console = Console(width=80, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(report)
        console.print(host_table(report.summaries[1], title="hosts"))
    text = capture.get()
    assert "…" not in text
    assert "10.0x" in text
    assert "50.0 %" in text
    assert "host-1" in text


def test_every_field_of_the_json_is_documented(report):
    words = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    data = report.to_dict()
    summary, run = data["summaries"][0], data["runs"][0]
    parts = (data, run, run["chunks"][0], summary, summary["hosts"][0], data["advice"][0])
    missing = {name for part in parts for name in part if f"`{name}`" not in words}
    assert missing == set()
    assert f"(`{data['schema']}`) and `version` ({data['version']})" in words
