from __future__ import annotations

from rich.console import Console
from tests.report.render.test_html import Page

from hepcache.report import CycleReport, Explanation
from hepcache.report.render.tables import host_table


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
