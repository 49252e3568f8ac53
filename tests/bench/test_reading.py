from __future__ import annotations

import awkward as ak
import pytest

from hepcache.bench.reading import ReadColumns


def test_the_processor_reads_every_value():
    events = ak.Array({"x": [1, 2, 3], "y": [[1.0], [], [2.0, 3.0]]})
    assert ReadColumns(["x", "y"]).process(events) == {"events": 3, "values": 6}
    assert ReadColumns(["y"]).process(events[1:]) == {"events": 2, "values": 2}
    assert ReadColumns(["x", "z"], missing="skip").process(events) == {"events": 3, "values": 3}
    with pytest.raises(ak.errors.FieldNotFoundError):
        ReadColumns(["x", "z"]).process(events)
