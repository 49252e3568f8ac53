"""What the processed events of a store look like."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from hepcache.eventstore import EventBatch, LoadedEvent, Store, SubRun


def fill(subrun: SubRun) -> None:
    """Store products of which some are empty, and some are not there."""
    subrun.create_many([1, 2, 3])
    subrun.ingest("hits", [1, 2], {"n": np.array([7, 8])}, [0, 2, 2])
    subrun.at(1)["raw"] = b"\0payload"
    subrun.at(3)["raw"] = b""
    subrun.at(2)["mass"] = 1.5
    subrun.at(2)["name"] = "muon"


HITS = [[{"n": 7}, {"n": 8}], [], None]
PRODUCTS = ["hits", "raw", "mass", "name"]


@pytest.mark.parametrize("options", [{}, {"processes": 1}], ids=str)
def test_absent_and_empty_products_differ(tmp_path: Any, options: dict[str, int]) -> None:
    from hepcache.eventstore import connect

    with connect(tmp_path / "store") as store:
        run = store.create("d").create(1)
        fill(run.create(1))
        run.create(2).create_many([1, 2])  # which has no products at all
        fill(run.create(3))

        def collect(events: EventBatch) -> dict[str, list[Any]]:
            return {label: events[label].to_list() for label in PRODUCTS}

        def present(event: LoadedEvent) -> list[Any]:
            return [(event.id, [label for label in PRODUCTS if label in event])]

        value = store.process("d", collect, products=PRODUCTS, **options).value
        none = [None, None]
        assert value["hits"] == [*HITS, *none, *HITS]
        raw = [b"\0payload", None, b""]
        assert value["raw"] == [*raw, *none, *raw]
        assert value["mass"] == [None, 1.5, None, *none, None, 1.5, None]
        assert value["name"] == [None, "muon", None, *none, None, "muon", None]
        value = store.process("d", present, products=PRODUCTS, per="event", **options).value
        there = [["hits", "raw"], ["hits", "mass", "name"], ["raw"]]
        assert [labels for _, labels in sorted(value)] == [*there, [], [], *there]


def test_a_bytes_product_of_one_event_is_bytes(store: Store, subrun: SubRun) -> None:
    subrun.create(1)["raw"] = b"\0ab"
    subrun.create(2)["raw"] = b""
    found = store.process(
        "nova/prod5", lambda event: [event["raw"]], products=["raw"], per="event"
    )
    assert found.value == [b"\0ab", b""]
    assert subrun.read("raw").array().to_list() == [b"\0ab", b""]


def test_cuts_of_absent_products_are_small_when_sent(store: Store, subrun: SubRun) -> None:
    numbers = np.arange(2000)
    subrun.create_many(np.arange(2001))
    subrun.ingest("hits", numbers, {"n": numbers}, np.arange(2001))
    sizes: list[int] = []

    def measure(events: EventBatch) -> None:
        sizes.append(len(pickle.dumps(events, protocol=5)))

    store.process("nova/prod5", measure, products=["hits"], work_batch=10)
    assert max(sizes) < 2000
