from __future__ import annotations

from rich.console import Console
from tests.report.render.test_html import Page

from hepcache.report import CycleReport, Explanation
from hepcache.report.misses import misses_of
from hepcache.report.render.tables import host_table, notes_text
from hepcache.report.summary import summarise


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


def test_the_table_shows_both(comparison):
    console = Console(width=100)
    with console.capture() as shown:
        console.print(comparison)
    text = shown.get()
    assert "a <b> → new" in text
    assert "2.00 s → 1.00 s" in text
    assert "They have 3 and 2 cycles." in text


def shown(found: Explanation, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(found)
    return capture.get()


def test_a_terminal_of_80_columns_shows_all_numbers(messy):
    text = shown(messy.explain())
    assert "…" not in text
    for expected in (
        "40.0 % of the columns came", "Files are in /data/", "<1>.root", "host-0 → host-1",
        "evicted", "stale", "Next cycle:", "weights=speed", "measured speeds",
    ):  # fmt: skip
        assert expected in text, expected


def test_many_files_are_cut_short(make_record, make_chunk):
    chunks = [make_chunk(uuid=f"u{n}", path=f"root://far//d/{n}.root") for n in range(30)]
    text = shown(make_record(*chunks).explain())
    assert "Files are in root://far//d/" in text
    assert "and 22 more" in text


def test_a_cycle_that_read_nothing(make_record, make_hot):
    hot = CycleReport((make_record(make_hot()),)).explain()
    assert "nothing was read at the origin" in shown(hot)
    assert "nothing was read at the origin" in " ".join(Page(hot._repr_html_()).words)
    empty = CycleReport((make_record(hosts={}),)).explain(what_if=["ssd=2"])
    assert "Next cycle" in shown(empty)
    assert empty.to_dict()["total"]["chunks"] == 0


def test_what_neighbours_gave_is_neither_a_hit_nor_read_at_the_origin(make_record, make_chunk):
    given = make_chunk(
        causes={"hit": 1, "neighbour": 3}, cause_bytes={"hit": 5000, "neighbour": 3000},
        cache_bytes=5000, origin_bytes=0, neighbour_bytes=1200, columns=4,
    )  # fmt: skip
    records = [make_record(given)]
    (summary,) = summaries = [summarise(record) for record in records]
    assert (summary.hit_ratio, summary.missed_bytes, summary.neighbour_bytes) == (0.25, 0, 1200)
    text = notes_text(records, summaries) or ""
    assert "got 3.00 kB of columns from other hosts' caches (1.20 kB on the network)" in text
    assert misses_of(records) == ()
