"""The bytes that a shard keeps: stores of earlier versions must stay readable."""

from __future__ import annotations

import hashlib

import awkward as ak
import numpy as np
import pytest

from hepcache.errors import StoreError
from hepcache.eventstore import Schema, Table
from hepcache.eventstore.engines.engine import MemoryEngine
from hepcache.eventstore.keys import META, VALUE
from hepcache.eventstore.shard import events as event_values
from hepcache.eventstore.shard.operations import AddEvents, PutItems, WriteTable
from hepcache.eventstore.shard.shard import LocalShard, verify
from hepcache.eventstore.values import encode

SUBRUN = bytes(range(16)) + (43).to_bytes(8, "big") + (56).to_bytes(8, "big")


def test_keys_and_values_are_golden() -> None:
    events = np.arange(0, 40_000, 2, dtype=np.uint64)
    columns = {"b": events * 0.5, "a": events.astype("i4")}
    many = Table.build(None, events, columns, np.arange(20_001))
    few = Table.build(
        None,
        np.array([1, 2**64 - 1], "u8"),
        {"s": ak.Array(["x", "yz"]), "n": np.array([3, 4])},
        [0, 1, 2],
    )
    engine = MemoryEngine()
    shard = LocalShard(engine)
    value = encode(np.float32([1, 2]), Schema.table({"": "float32"}, kind="numpy"))
    shard.apply(
        [
            AddEvents(SUBRUN, np.union1d(events, few.events)),
            WriteTable(SUBRUN, "slice", many),
            WriteTable(SUBRUN, "single", few),
            PutItems(((VALUE + SUBRUN, value),)),
        ]
    )
    digest = hashlib.sha256()
    count = 0
    with engine.read() as view:
        for key, item in view.scan(b"", None):
            if not key.startswith(META):  # stamps are random
                digest.update(len(key).to_bytes(4, "big") + key + bytes(item))
                count += 1
    assert (count, digest.hexdigest()) == (
        14,
        "505ea5de9d19c7595520d80a595f49d9627565b5b2573cbe97ec0ab3b1e79a99",
    )


@pytest.mark.parametrize("count", [2, 2000])
def test_products_of_events_that_are_not_there_are_named(count: int) -> None:
    numbers = np.arange(count, dtype=np.uint64)
    engine = MemoryEngine()
    shard = LocalShard(engine)
    table = Table.build(None, numbers, {"x": np.arange(count)})
    shard.apply([WriteTable(SUBRUN, "slice", table)])
    assert shard.query(verify) > 0
    with engine.write() as view:  # as earlier versions could leave it
        event_values.remove(view, SUBRUN, numbers[1:2])
    with pytest.raises(StoreError, match=r"run 43, subrun 56: 1 events .*'slice'.* first is 1"):
        shard.query(verify)
    shard.apply([AddEvents(SUBRUN, numbers)])
    assert shard.query(verify) > 0
