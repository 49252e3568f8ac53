from __future__ import annotations

from hepcache.cache import ColumnCache
from hepcache.eventstore import connect
from hepcache.fileset import load_fileset
from hepcache.identity import JobIdentity
from hepcache.notebook import card
from hepcache.placement import Residency, place


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
