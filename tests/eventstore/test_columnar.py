"""A dataset as a table: its entries, and what changes its stamp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hepcache.eventstore import Store, connect
from hepcache.eventstore.columnar import columnar_events, stamp_of

WRITES: dict[str, Callable[[Store], object]] = {
    "new run": lambda store: store["nova"].create(9),
    "new subrun": lambda store: store["nova"][1].create(9),
    "new event": lambda store: store["nova"][1][2].create(9),
    "many events": lambda store: store["nova"][1][2].create_many([10, 11]),
    "new product": lambda store: store["nova"][1][2][9].store("one", np.float32(1)),
    "same product again": lambda store: store["nova"][1][2][9].store(
        "one", np.float32(1), overwrite=True
    ),
    "columns": lambda store: store["nova"][1][2].ingest("x", [10], {"y": np.ones(1)}),
    "product removed": lambda store: store["nova"][1][2][9].products.clear(),
    "products removed": lambda store: store["nova"][1][2].remove("x"),
    "event removed": lambda store: store["nova"][1][2].__delitem__(9),
    "subrun removed": lambda store: store["nova"][1].__delitem__(2),
}


@pytest.mark.parametrize("url", ["mem://?shards=3", "file"])
def test_every_write_to_a_dataset_changes_its_stamp(url: str, tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}?shards=3" if url == "file" else url) as store:
        store.create("nova").create(1).create(2)
        other = store.create("other").create(1).create(2)
        seen = [stamp_of(store, store["nova"].key)]
        for write in WRITES.values():
            write(store)
            seen.append(stamp_of(store, store["nova"].key))
        assert len(set(seen)) == len(WRITES) + 1
        # What concerns other datasets, or is only read, does not.
        other.ingest("x", [1], {"y": np.ones(1)})
        store["nova"].products["calibration"] = b"1"
        with pytest.raises(KeyError):
            store["nova"][1][2]
        assert stamp_of(store, store["nova"].key) == seen[-1]


def test_events_are_in_the_order_of_their_numbers() -> None:
    with connect("mem://?shards=5") as store:
        nova = store.create("nova")
        for run in (2**40, 3, 70):
            for subrun in (256, 1):
                nova.create(run, exist_ok=True).create(subrun).create_many(range(run % 7))
        found = columnar_events(store, nova.key)
        assert [key[16:] for key in found.subruns] == [
            one.key[16:] for one in nova.subruns() if len(one)
        ]
        assert found.starts.tolist() == [0, 3, 6, 8, 10]
        pieces = [(key[24:], low, high) for key, low, high in found.pieces(2, 7)]
        assert [(low, high) for _, low, high in pieces] == [(2, 3), (0, 3), (0, 1)]
        assert found.pieces(5, 5) == []
