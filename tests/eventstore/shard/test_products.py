"""Row groups and singles, small enough to split and join all the time."""

from __future__ import annotations

import numpy as np
import pytest

from hepcache.eventstore import Store, SubRun


def test_row_groups_split_and_join(subrun: SubRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.eventstore.shard.products._MOST_EVENTS", 8)
    monkeypatch.setattr("hepcache.eventstore.shard.products._SMALL_GROUP", 4)
    monkeypatch.setattr("hepcache.eventstore.shard.events._MOST_EVENTS", 8)
    order = np.random.default_rng(3).permutation(400)
    for part in np.split(order, 40):
        numbers = np.sort(part)
        subrun.ingest("n", numbers, {"v": numbers * 2}, np.arange(len(numbers) + 1))
    assert subrun.numbers().tolist() == list(range(400))
    assert subrun.read("n").columns["v"].tolist() == list(range(0, 800, 2))
    assert subrun.read("n", None, 37, 59).events.tolist() == list(range(37, 59))
    assert subrun[123]["n"]["v"].tolist() == [246]


def test_singles_become_row_groups(
    store: Store, subrun: SubRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hepcache.eventstore.shard.shard._MOST_SINGLES", 16)
    for number in np.random.default_rng(5).permutation(50).tolist():
        subrun.create(number)["v"] = np.array([number, number])
    assert subrun.read("v").array().tolist() == [[one, one] for one in range(50)]
    subrun[7].store("v", np.array([1]), overwrite=True)
    del subrun[8]["v"]
    assert subrun.read("v", None, 6, 10).array().tolist() == [[6, 6], [1], [9, 9]]
