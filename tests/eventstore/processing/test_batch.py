from __future__ import annotations

import pickle

import awkward as ak
import numpy as np
import pytest

from hepcache.eventstore import EventBatch

RECORDS = ak.Array([[{"x": 1.5, "n": 3}], [], [{"x": np.nan, "n": -1}, {"x": 2.5, "n": 7}], []])


@pytest.mark.parametrize(
    "rows",
    [
        RECORDS,
        RECORDS[:0],
        ak.with_name(RECORDS, "Slice"),
        ak.Array([["a"], [], ["neutrino", "b"], []]),
        ak.Array([[[1, 2]], [], [[]], []]),
        ak.Array([1.5, None, 2.5, None]),
        ak.Array([[{"x": 1, "more": [1, 2]}], [], [], []]),
        ak.to_regular(ak.Array(np.arange(8).reshape(4, 2))),
        np.arange(4),
    ],
    ids=lambda rows: str(ak.type(rows))[:30],
)
@pytest.mark.parametrize("cut", [slice(0, 4), slice(1, 3), slice(2, 2)], ids=str)
def test_a_batch_is_the_same_in_another_process(rows: ak.Array, cut: slice) -> None:
    n = len(rows)
    numbers = np.arange(n, dtype="u8")
    batch = EventBatch(numbers, numbers, numbers, {"p": rows}).cut(cut.start, cut.stop)
    again = pickle.loads(pickle.dumps(batch, protocol=5))
    assert again.ids() == batch.ids()
    assert str(ak.type(again["p"])) == str(ak.type(batch["p"]))
    assert str(ak.to_list(again["p"])) == str(ak.to_list(batch["p"]))
    assert len(again) == len(again["p"]) == len(batch)
