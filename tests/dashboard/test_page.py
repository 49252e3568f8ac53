"""Every panel shows every state; the browser's side is tested in tests/live/dashboard."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bokeh.document import Document

from hepcache.dashboard.page import Page
from hepcache.dashboard.state import DatasetView, HostView, Rates, RunView, SegmentMap, Snapshot
from hepcache.telemetry import Tally


def snapshot(hosts: int = 3, cells: int = 5) -> Snapshot:
    views = tuple(
        HostView(f"host-{n}", 2, 0.4, 0.6 + 0.1 * n, n, n, 2 * n, {f"w{n}": 10.0 + n})
        for n in range(hosts)
    )
    state = np.zeros((hosts, cells), dtype=np.uint8)
    tally = Tally(4, 400, 3000, 500)
    tally.causes.update(hit=3, miss=1)
    tally.cause_bytes.update(hit=3000, miss=900)
    return Snapshot(
        run="0123456789ab", elapsed_s=8.0, is_over=False, chunks=10, chunks_done=4,
        tally=tally, moved={("host-0", "host-1"): 2}, tail_s=1.5, hosts=views,
        segments=SegmentMap(tuple(one.host for one in views), cells, 2, state,
                            state.astype(np.float32), (0, 2), 0.5),
        rates=Rates([-1.0, 0.0], [100.0, 200.0], [50.0, 0.0], [0.5, float("nan")]), cost=0.004,
    )  # fmt: skip


class FixedMonitor:
    def __init__(self, shown: Snapshot) -> None:
        self.shown = shown
        self.earlier: dict[str, Snapshot] = {}

    def snapshot(self) -> Snapshot:
        return self.shown


def page_of(shown: Snapshot) -> tuple[Page, Document]:
    page = Page(FixedMonitor(shown))
    doc = Document()
    doc.add_root(page.root)
    return page, doc


def test_all_values_are_on_the_page() -> None:
    _, doc = page_of(snapshot())
    sources = {
        name: doc.get_model_by_name(f"hepcache-{name}").data
        for name in ("numbers", "causes-source", "load-source", "stealing-source", "tail-source",
                     "bytes-source", "hits-source", "residency-source")
    }  # fmt: skip
    assert sources["numbers"]["hit_ratio"] == [0.75]
    assert sources["causes-source"]["columns"] == [3, 0, 1, 0, 0, 0, 0]
    assert sources["load-source"]["both"] == pytest.approx([1.0, 1.1, 1.2])
    assert sources["stealing-source"]["given"] == [0, -2, -4]
    assert sources["tail-source"]["last"] == [10.0, 11.0, 12.0]
    assert sources["bytes-source"]["origin"] == [50.0, 0.0]
    assert sources["residency-source"]["cells"][0].shape == (3, 5)
    text = doc.get_model_by_name("hepcache-tiles").text
    assert "75.0 %" in text
    assert "run 012345, on" in text


def test_runs_are_listed_where_several_are_on() -> None:
    runs = (
        RunView("aa0123456789", "alice@login1", 0.0, 4, 90, 88.0, {"alice@login1": 4}),
        RunView("bb0123456789", "<bob>", 1.0, 0, 3, 0.4, {"alice@login1": 3}),
    )
    _, doc = page_of(replace(snapshot(), runs=runs))
    text = doc.get_model_by_name("hepcache-runs").text
    assert "alice@login1 at 3 workers" in text
    assert "&lt;bob&gt;" in text
    assert doc.get_model_by_name("hepcache-run-list").data["waiting"] == [90, 3]
    _, doc = page_of(replace(snapshot(), runs=runs[:1]))
    assert doc.get_model_by_name("hepcache-runs").text == ""


def test_chunks_that_the_result_lacks_are_shown_where_there_are_any() -> None:
    _, doc = page_of(snapshot())
    assert "chunks failed" not in doc.get_model_by_name("hepcache-tiles").text
    assert doc.get_model_by_name("hepcache-load-source").data["lacking"] == ["", "", ""]
    first, second, third = snapshot().hosts
    hosts = first, replace(second, failed=2, skipped=1), replace(third, skipped=4)
    _, doc = page_of(replace(snapshot(), hosts=hosts))
    text = doc.get_model_by_name("hepcache-tiles").text
    assert "<span>chunks failed</span><b>2</b>" in text
    assert "<span>chunks skipped</span><b>5</b>" in text
    load = doc.get_model_by_name("hepcache-load-source").data
    assert load["lacking"] == ["", "2 failed, 1 skipped", "4 skipped"]


def test_each_dataset_has_a_bar() -> None:
    datasets = DatasetView("data", 8, 8), DatasetView("tt", 4, 1, failed=1, left_s=7.0)
    page, doc = page_of(replace(snapshot(), datasets=datasets))
    shown = doc.get_model_by_name("hepcache-datasets-source").data
    assert shown["name"] == ["data", "tt"]
    assert (shown["done"], shown["failed"]) == ([1.0, 0.25], [1.0, 0.5])
    assert shown["text"][1] == "1 of 4 chunks, at most 7.00 s left, 1 failed"
    many = [DatasetView(f"d{number:02}", 2, 2) for number in range(40)]
    page._monitor.shown = replace(snapshot(), datasets=(*many, DatasetView("z", 2, 0, left_s=1.0)))
    page.update()
    names = doc.get_model_by_name("hepcache-datasets-source").data["name"]
    assert len(names) == 24
    assert names[-1] == "z"


def test_an_earlier_run_can_be_chosen() -> None:
    page, doc = page_of(snapshot())
    select = doc.get_model_by_name("hepcache-select")
    assert select.options == [("", "The latest run")]
    old = replace(snapshot(), run="ffff00000000", chunks=77, is_over=True)
    page._monitor.earlier[old.run] = old
    page.update()
    assert select.options[1] == ("ffff00000000", "Run ffff00: 77 chunks, 8.00 s, 75.0 % hits")
    select.value = old.run
    numbers = doc.get_model_by_name("hepcache-numbers")
    assert numbers.data["run"] == ["ffff00000000"]
    page.update()
    assert numbers.data["chunks"] == [77]
    # One that is too long ago gives way to the latest.
    page._monitor.earlier.clear()
    page.update()
    assert (select.value, numbers.data["run"]) == ("", ["0123456789ab"])


def test_only_what_is_new_is_sent() -> None:
    page, doc = page_of(snapshot())
    changes: list[object] = []
    doc.on_change(changes.append)
    page.update()
    assert changes == []
    page._monitor.shown = replace(page._monitor.shown, chunks_done=5)
    page.update()
    assert changes
    assert doc.get_model_by_name("hepcache-numbers").data["chunks_done"] == [5]


def test_all_hosts_may_leave() -> None:
    page, doc = page_of(snapshot())
    page._monitor.shown = snapshot(0, 0)
    page.update()
    assert doc.get_model_by_name("hepcache-load").y_range.factors == []


@pytest.mark.parametrize(("hosts", "cells"), [(0, 0), (1, 1), (100, 360)])
def test_no_host_and_many_hosts(hosts: int, cells: int) -> None:
    _, doc = page_of(snapshot(hosts, cells))
    assert len(doc.get_model_by_name("hepcache-load").y_range.factors) == min(hosts, 24)
    assert len(str(doc.to_json())) < 600_000


def test_before_the_first_run() -> None:
    blank = replace(snapshot(), run="", tally=Tally(), chunks=0, chunks_done=0, elapsed_s=0.0)
    _, doc = page_of(blank)
    assert "no run yet" in doc.get_model_by_name("hepcache-tiles").text
