"""An explanation as a value, in a terminal, in a notebook, and as JSON."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from tests.report.test_cycles import Page

from hepcache.errors import ConfigurationError
from hepcache.report import REASONS, CycleReport, Explanation


@pytest.fixture
def messy(make_record, make_chunk, make_hot) -> CycleReport:
    """A cold cycle, and one in which every kind of thing goes wrong.

    Every chunk that reads loses 0.3 s and 0.2 s, and 0.09 s of opening.
    """
    places = [
        {"path": f"/data/<{n}>.root", "uuid": f"u{n}", "dataset": "tt" if n < 3 else "dy",
         "host": f"host-{n % 2}", "worker": f"w{n % 2}", "owner": f"host-{n % 2}",
         "began": 1000.0 + n, "ended": 1001.0 + n}
        for n in range(5)
    ]  # fmt: skip
    cold = make_record(*(make_chunk(**one) for one in places), columns=["a", "b", "c"])
    chunks = [
        make_hot(**{**places[0], "ended": 1000.1}),
        make_chunk(**places[1], causes={"evicted": 2, "hit": 1},
                   cause_bytes={"evicted": 2000, "hit": 1000}),
        make_chunk(**{**places[2], "host": "host-1", "worker": "w1"},
                   causes={"stolen": 3}, cause_bytes={"stolen": 3000}),
        make_chunk(**places[3], causes={"corrupt": 1, "hit": 2},
                   cause_bytes={"corrupt": 1000, "hit": 2000}),
        make_chunk(**{**places[4], "uuid": "replaced"}),
    ]  # fmt: skip
    run = make_record(*chunks, columns=["a", "b", "c"], wall_s=5.5)
    return CycleReport((cold, run), "A <messy> report")


def test_costs_by_reason_dataset_host_and_file(messy):
    found = messy.explain()
    assert (found.cycle, found.title) == (2, "A <messy> report")
    assert found.hit_ratio == pytest.approx(6 / 15)
    assert found.busy_s == pytest.approx(4.1)
    total = found.total
    assert (total.chunks, total.columns, total.nbytes) == (4, 9, 9000)
    assert total.origin_bytes == 4 * 1500
    assert total.lost_s == pytest.approx(4 * 0.59)
    assert {k: (c.chunks, c.columns, c.nbytes) for k, c in found.by_reason.items()} == {
        "stolen": (1, 3, 3000), "stale": (1, 3, 3000), "evicted": (1, 2, 2000),
        "corrupt": (1, 1, 1000),
    }  # fmt: skip
    assert {k: c.columns for k, c in found.by_dataset.items()} == {"tt": 5, "dy": 4}
    assert found.by_dataset["tt"].reasons == {"evicted": 2, "stolen": 3}
    assert {k: c.chunks for k, c in found.by_host.items()} == {"host-1": 3, "host-0": 1}
    assert found.by_file["/data/<1>.root"].reasons == {"evicted": 2}
    assert {k: c.columns for k, c in found.thefts.items()} == {("host-0", "host-1"): 3}


def test_what_costs_most_comes_first(make_record, make_chunk):
    run = make_record(
        make_chunk(uuid="a", path="/a", read_s=0.1), make_chunk(uuid="b", path="/b", read_s=0.9),
        make_chunk(uuid="c", path="/c", read_s=0.5),
    )  # fmt: skip
    found = run.explain()
    assert [miss.chunk.path for miss in found.worst()] == ["/b", "/c", "/a"]
    assert [miss.chunk.path for miss in found.worst(1)] == ["/b"]
    assert list(found.by_file) == ["/b", "/c", "/a"]


def test_any_cycle_can_be_explained(messy):
    first = messy.explain(1, what_if=())
    assert list(first.by_reason) == ["cold"]
    assert first.what_if == ()
    assert messy.records[1].explain(messy.records[:1]).misses == messy.explain().misses
    for number in (0, 3):
        with pytest.raises(ConfigurationError, match="1 to 2"):
            messy.explain(number)
    with pytest.raises(ConfigurationError):
        CycleReport(()).explain()
    with pytest.raises(ConfigurationError, match="--what-if"):
        messy.explain(what_if=["more"])


def test_the_json_form_is_complete(messy):
    data = json.loads(json.dumps(messy.explain().to_dict(worst=2), allow_nan=False))
    assert data["schema"] == "hepcache.explanation"
    assert [one["reason"] for one in data["reasons"]] == ["stale", "stolen", "evicted", "corrupt"]
    assert all(one["meaning"] == REASONS[one["reason"]] for one in data["reasons"])
    assert sum(one["columns"] for one in data["files"]) == data["total"]["columns"] == 9
    assert data["thefts"][0]["owner"] == "host-0"
    assert data["thefts"][0]["taker"] == "host-1"
    assert len(data["worst"]) == 2
    assert {"file", "tree", "start", "stop", "reason", "host", "lost_s"} <= set(data["worst"][0])
    assert [one["change"] for one in data["what_if"]] == ["ssd=2", "hosts=+1", "weights=speed"]
    # A file was replaced, so the cold cycle forecast another one.
    assert data["forecast"]["checks"] == []


def shown(found: Explanation, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(found)
    return capture.get()


def test_a_terminal_of_80_columns_shows_all_numbers(messy):
    text = shown(messy.explain())
    assert "…" not in text
    for expected in (
        "40.0 % hits", "Files are in /data/", "<1>.root", "host-0 → host-1", "evicted", "stale",
        "Next cycle:", "weights=speed", "measured speeds",
    ):  # fmt: skip
        assert expected in text, expected


def test_many_files_are_cut_short(make_record, make_chunk):
    chunks = [make_chunk(uuid=f"u{n}", path=f"root://far//d/{n}.root") for n in range(30)]
    text = shown(make_record(*chunks).explain())
    assert "Files are in root://far//d/" in text
    assert "and 22 more" in text


def test_a_notebook_shows_it_with_words_escaped(messy):
    html = messy.explain()._repr_html_()
    words = Page(html).words
    assert "/data/<1>.root" in words
    assert "A <messy> report, cycle 2:" in words
    for expected in ("stale", "host-0 → host-1", "9.00 kB", "ssd=2"):
        assert expected in words
    assert "<script" not in html


def test_a_cycle_that_read_nothing(make_record, make_hot):
    hot = CycleReport((make_record(make_hot()),)).explain()
    assert "nothing was read at the origin" in shown(hot)
    assert "nothing was read at the origin" in " ".join(Page(hot._repr_html_()).words)
    empty = CycleReport((make_record(hosts={}),)).explain(what_if=["ssd=2"])
    assert "Next cycle" in shown(empty)
    assert empty.to_dict()["total"]["chunks"] == 0
