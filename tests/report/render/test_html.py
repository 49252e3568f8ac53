from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from tests.report.conftest import GONE, TIMES
from tests.report.test_record import USE

from hepcache.report import CycleReport
from hepcache.report.outcomes import MissingChunk
from hepcache.report.render.html import fragment, page
from hepcache.report.render.style import DARK, LIGHT, SENTINEL, Theme


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
    for expected in (f"10.0{TIMES}", "50.0 %", "3.00 kB", "stolen", "host-1", "What to change"):
        assert expected in words


def test_the_page_says_what_the_command_took_and_what_the_speed_up_leaves_out(report):
    assert not any("Total" in word for word in Page(page(report)).words)
    phases = {"start": 4.0, "cycles": 3.4}
    words = " ".join(Page(page(replace(report, phases=phases))).words)
    assert re.search(r"Total \S+ s: started in 4.00 s, 3 cycles 3.40 s, report \S+ m?s\.", words)
    assert "The speed-up compares cycles" in words
    assert "start of the cluster and this page are left out" in words


def test_the_page_is_light_and_dark(report):
    text = page(report)
    dark = text.split("@media (prefers-color-scheme: dark)")[1].split("@media")[0]
    assert LIGHT.cache in text.split("@media")[0]
    assert DARK.cache in dark
    for role in Theme.__slots__:
        assert getattr(SENTINEL, role) not in text
    assert "var(--hc-origin)" in text


def test_skipped_files_are_on_the_page(make_record, make_chunk):
    failed = MissingChunk("tt", "/a.root", "Events", 100, 300, "KeyError('x')")
    cycles = make_record(make_chunk(), skipped=[GONE]), make_record(skipped=[GONE, failed])
    words = Page(page(CycleReport(cycles))).words
    assert {"What the result lacks", "/bad.root", "it is <truncated>", "unknown"} <= set(words)
    assert {"1, 2", "100 to 300", "200", "KeyError('x')"} <= set(words)


def test_a_clock_that_was_never_set_has_a_page_too(make_record, make_chunk):
    assert "unknown time" in page(CycleReport((make_record(make_chunk(), began=-9e10),)))


def test_a_page_is_the_same_each_time(report):
    assert page(report) == page(report)


def test_the_page_shows_them_only_where_they_are(tmp_path, make_record, make_chunk, make_hot):
    without = CycleReport((make_record(make_chunk()), make_record(make_hot())))
    assert "FS-Cache" not in without.to_html(tmp_path / "without.html").read_text()
    both = CycleReport((make_record(make_chunk()), make_record(make_hot(), kernels=[USE])))
    page = both.to_html(tmp_path / "with.html").read_text()
    section = page[page.index("NFS and FS-Cache below the hosts") :]
    rows = section[section.index("<tbody>") : section.index("</tbody>")].split("<tr>")[1:]
    assert len(rows) == 2
    assert '<th scope="row">2</th>' in rows[0]  # the cycle that has any
    for text in ("host-0, host-1", "/mnt/store, /mnt/&lt;bind&gt; (server:/store)", "yes",
                 "67.1 MB", "33.6 MB", "256", "not counted"):  # fmt: skip
        assert text in rows[0]
    for text in ("/mnt/plain data (server:/plain)", "no", "8.39 MB", "0 B"):
        assert text in rows[1]


@pytest.mark.parametrize("make", [page, fragment])
def test_a_page_stands_alone_light_and_dark(comparison, make):
    text = make(comparison)
    found = Page(text)
    assert all(link.startswith("#") for link in found.links)
    assert not re.search(r"@import|<script|<link", text)
    assert [name for name, count in Counter(found.ids).items() if count > 1] == []
    assert {link[1:] for link in found.links} <= set(found.ids)
    dark = text.split("@media (prefers-color-scheme: dark)")[1].split("@media")[0]
    assert DARK.second in dark
    assert LIGHT.second in text
    for role in Theme.__slots__:
        assert getattr(SENTINEL, role) not in text
    assert "a <b>" in found.words
    assert "a <b>" not in text
    assert f"2.00{TIMES}" in found.words
    assert make(comparison) == text


def test_a_notebook_shows_it_with_words_escaped(messy):
    html = messy.explain()._repr_html_()
    words = Page(html).words
    assert "/data/<1>.root" in words
    assert "A <messy> report, cycle 2:" in words
    for expected in ("stale", "host-0 → host-1", "9.00 kB", "ssd=2"):
        assert expected in words
    assert "<script" not in html


def test_of_few_chunks_there_is_no_distribution(report, make_record, make_hot):
    assert "How long chunks take" not in Page(page(report)).words
    many = make_record(*(make_hot(start=100 * number) for number in range(20)))
    assert "How long chunks take" in Page(page(CycleReport((many,)))).words


def test_the_page_explains_the_last_cycle(report):
    words = Page(page(report)).words
    assert "The last cycle explained" in words
    assert "slowest chunks" in words
