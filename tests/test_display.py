from __future__ import annotations

import io

from rich.console import Console

from hepcache.cache import ColumnCache
from hepcache.display import card, track
from hepcache.eventstore import connect
from hepcache.fileset import load_fileset
from hepcache.placement import Residency, place
from hepcache.placement.identity import JobIdentity


def drawn(*, terminal: bool, moment_s: float, enabled: bool = True) -> tuple[list[int], str]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    items = track(range(5), 5, "Opening", enabled=enabled, console=console, moment_s=moment_s)
    return list(items), out.getvalue()


def test_a_bar_is_drawn_for_longer_work_and_goes_when_done() -> None:
    items, text = drawn(terminal=True, moment_s=-1)
    assert items == [0, 1, 2, 3, 4]
    assert "Opening" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is wiped


def test_nothing_is_drawn_for_a_moment_or_without_a_terminal_or_when_unwanted() -> None:
    everything = [0, 1, 2, 3, 4]
    assert drawn(terminal=True, moment_s=60) == (everything, "")
    assert drawn(terminal=False, moment_s=-1) == (everything, "")
    assert drawn(terminal=True, moment_s=-1, enabled=False) == (everything, "")


def test_a_bar_inside_another_display_is_left_out() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with console.status("busy"):
        items = track(range(3), 3, "Opening", console=console, moment_s=-1)
        assert list(items) == [0, 1, 2]


def test_a_bar_goes_when_the_work_is_given_up() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True)
    items = track(range(5), 5, "Opening", console=console, moment_s=-1)
    next(items)
    next(items)
    items.close()  # type: ignore[attr-defined]
    console.print("after")
    with console.status("another display can start"):
        pass


def test_words_are_escaped_and_long_tables_cut():
    found = card("<b>", {"a&b": "<i>"}, ("name", "n"), ((f"row {n}", n) for n in range(30)))
    assert "&lt;b&gt;" in found
    assert "a&amp;b" in found
    assert "<i>" not in found
    assert "row 23" in found
    assert "row 24" not in found
    assert "and 6 more" in found


def test_numbers_are_aligned_and_addresses_lead_somewhere():
    found = card("it", {"at": "http://localhost:1/x?a&b"}, ("name", "n"), [("a", "1"), ("b", "2")])
    assert "<a href='http://localhost:1/x?a&amp;b'>" in found
    assert found.count("text-align:right") == 3
    words = card("it", {}, ("name", "tree"), [("a", "Events")])
    assert "text-align:right" not in words


def test_a_fileset_shows_its_datasets():
    shown = load_fileset({"tt<1>": {"files": ["/data/a.root", "/data/b.root"]}})._repr_html_()
    assert "1 dataset, 2 files" in shown
    assert "tt&lt;1&gt;" in shown


def test_a_placement_shows_its_hosts():
    jobs = [JobIdentity(str(n), "Events", 0) for n in range(10)]
    shown = place(jobs, {"a": 1.0, "b": 1.0}, residency=Residency())._repr_html_()
    assert "Placement of 10 jobs" in shown
    assert shown.count("50.0 %") == 2


def test_a_store_shows_its_room(tmp_path):
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=2_000_000_000)
    shown = cache._repr_html_()
    assert "0 bytes of 2.0 GB" in shown
    assert str(tmp_path) in shown
    cache.close()


def test_an_event_store_shows_its_datasets_and_shards(tmp_path):
    store = connect(f"file://{tmp_path}/events?shards=3")
    store.create("nova<1>/prod5")
    store.create("dune")
    shown = store._repr_html_()
    assert "dune, nova&lt;1&gt;" in shown
    assert shown.count("lmdb") == 3
    store.close()
    assert "closed" in store._repr_html_()
