from __future__ import annotations

import json

import pytest

from hepcache.report import REASONS


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
