"""Batches of writes, and products that were read ahead."""

from __future__ import annotations

import numpy as np
import pytest

from hepcache.errors import StoreBatchError
from hepcache.eventstore import Schema, Store, SubRun


def test_a_batch_writes_all_and_reports_what_it_could_not(store: Store, subrun: SubRun) -> None:
    with store.batch(size=10) as batch:
        for number in range(35):
            subrun.create(number, batch=batch).store("v", np.array([number]), batch=batch)
        batch.flush()
        assert len(subrun) == 35
    assert batch.acknowledged == 70
    assert store.statistics.batch_items.count >= 4
    assert subrun.read("v").columns[""].tolist() == list(range(35))

    def again() -> None:
        with store.batch() as batch:
            subrun.at(3).store("v", np.array([0]), batch=batch)

    with pytest.raises(StoreBatchError, match=r"product 'v' of .*43/56, events 3") as caught:
        again()
    assert len(caught.value.failures) == 1
    assert subrun[3]["v"].tolist() == [3]


def test_prefetched_products_come_from_memory(store: Store, subrun: SubRun) -> None:
    schema = Schema.table({"": "int64"}, kind="numpy", layout="one")
    subrun.ingest("v", np.arange(10), {"": np.arange(10)}, schema=schema)
    subrun.prefetch(["v"], 0, 8)
    assert [int(subrun[one]["v"]) for one in range(10)] == list(range(10))
    assert store.statistics.cache_hits == 8
    subrun[3].store("v", np.int64(77), overwrite=True)
    assert int(subrun[3]["v"]) == 77
