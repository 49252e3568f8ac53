"""Look-ups remember what they found, and never longer than it is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import awkward as ak
import numpy as np
import pytest

from hepcache.errors import MissingItemError
from hepcache.eventstore import Store, connect
from hepcache.eventstore.shard import products


@pytest.fixture(params=["mem://", "file://{}?sync=false"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return connect(request.param.format(tmp_path / "store"))


def test_what_is_written_is_seen_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MOST_EVENTS", 8)
    subrun = store.create("a").create(1).create(2)
    numbers = np.arange(0, 80, 2)
    subrun.ingest("x", numbers, {"v": numbers * 10})
    for number in (*numbers.tolist(), *numbers.tolist()):
        assert subrun[number]["x"]["v"] == number * 10
    subrun.create(9)["x"] = ak.Record({"v": 1})
    assert subrun[9]["x"]["v"] == 1
    subrun[8].store("x", ak.Record({"v": 2}), overwrite=True)
    assert [subrun[one]["x"]["v"] for one in (6, 8, 9, 10)] == [60, 2, 1, 100]
    del subrun[8]
    with pytest.raises(MissingItemError):
        subrun[8]
    with pytest.raises(MissingItemError):
        subrun.at(8)["x"]
    assert subrun[10]["x"]["v"] == 100


def test_what_another_process_writes_is_seen_at_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    with connect(url) as store:
        subrun = store.create("a").create(1).create(2)
        subrun.ingest("x", np.arange(100), {"v": np.arange(100)})
        assert [subrun[one]["x"]["v"] for one in (3, 4)] == [3, 4]
        assert 200 not in subrun
        code = (
            "import sys, awkward as ak, hepcache.eventstore as es\n"
            "with es.connect(sys.argv[1]) as store:\n"
            "    subrun = store['a'][1][2]\n"
            "    subrun[3].store('x', ak.Record({'v': 7}), overwrite=True)\n"
            "    subrun.create(200)['x'] = ak.Record({'v': 8})\n"
        )
        subprocess.run([sys.executable, "-c", code, url], check=True, timeout=120)
        assert [subrun[one]["x"]["v"] for one in (3, 4, 200)] == [7, 4, 8]


def test_a_product_is_a_copy(store: Store) -> None:
    subrun = store.create("a").create(1).create(2)
    rows = ak.Array([{"n": 1, "l": [1.0, 2.0], "s": "one"}, {"n": 2, "l": [], "s": "two"}])
    with store.batch() as batch:
        for number in range(20):
            subrun.create(number, batch=batch).store("x", rows, batch=batch)
    first, again = subrun[3]["x"], subrun[3]["x"]
    for number in range(0, 20, 2):
        subrun[number].store("x", rows[:1], overwrite=True)
    subrun.clear()
    assert first.to_list() == again.to_list() == rows.to_list()
