"""Contents made when they are touched, against ``ak.from_buffers``."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.versions import since

from hepcache.process.lazy_columns import Contents

JETS = ak.Array(
    [
        {"run": 1, "Jet": [{"pt": 1.5, "id": [1, 2], "sub": {"x": 1}}], "tag": None, "s": "a"},
        {"run": 2, "Jet": [], "tag": 3, "s": ""},
        {
            "run": 3,
            "Jet": [
                {"pt": 2.5, "id": [], "sub": {"x": 2}},
                {"pt": 3.5, "id": [3], "sub": {"x": 3}},
            ],
            "tag": 4,
            "s": "bcd",
        },
    ]
)


def name(form_key: str, attribute: str, form: object) -> str:
    return f"{form_key}-{attribute}"


class Buffers(dict[str, Any]):
    """Buffers of an array, as functions that note when they are called."""

    def __init__(self, array: ak.Array) -> None:
        self.form, self.length, buffers = ak.to_buffers(array)
        self.loaded: list[str] = []
        super().__init__({key: self._loading(key, buffer) for key, buffer in buffers.items()})

    def _loading(self, key: str, buffer: Any) -> Any:
        def load() -> Any:
            self.loaded.append(key)
            return buffer

        return load

    def lazily(self) -> ak.Array:
        keep = lambda form_key, attribute: True  # noqa: E731
        return ak.Array(Contents(self, name, keep).make(self.form, self.length))


@since("awkward", "2.14")  # before, all contents are made, which loads nothing
def test_nothing_is_loaded_before_it_is_used_and_nothing_else_then() -> None:
    buffers = Buffers(JETS)
    events = buffers.lazily()
    assert events.fields == JETS.fields
    assert events.Jet.fields == JETS.Jet.fields
    assert len(events) == 3
    assert buffers.loaded == []
    made = events.layout.content("Jet").content._contents.made
    assert made == 0
    assert events.Jet.pt.to_list() == JETS.Jet.pt.to_list()
    assert events.layout.content("Jet").content._contents.made == 1
    assert len(buffers.loaded) == 2
    assert all(key.endswith(("-offsets", "-data")) for key in buffers.loaded)


USES = {
    "whole": lambda events: events,
    "slice": lambda events: events[1:],
    "picked": lambda events: events[[2, 0]],
    "masked": lambda events: events[events.run > 1],
    "jets": lambda events: events.Jet[events.Jet.pt > 2],
    "first": lambda events: ak.firsts(events.Jet),
    "one": lambda events: events.Jet[2, 1:].sub,
    "flat": lambda events: ak.flatten(events.Jet),
    "local": lambda events: ak.local_index(events.Jet),
    "sorted": lambda events: events.Jet[ak.argsort(events.Jet.pt, ascending=False)],
    "pairs": lambda events: ak.combinations(events.Jet, 2),
    "zipped": lambda events: ak.zip({"a": events.Jet.pt, "b": events.Jet.sub}),
    "new": lambda events: ak.with_field(events.Jet, events.Jet.pt * 2, "twice"),
    "without": lambda events: ak.without_field(events.Jet, "sub"),
    "some": lambda events: events.Jet[["pt", "id"]],
    "packed": lambda events: ak.to_packed(events),
    "joined": lambda events: ak.concatenate([events.Jet, events.Jet], axis=1),
    "filled": lambda events: ak.fill_none(events.tag, -1),
    "named": lambda events: ak.with_name(events.Jet, "Jet"),
    "padded": lambda events: ak.pad_none(events.Jet, 2),
    "where": lambda events: ak.where(events.run > 1, events.Jet, events.Jet[:, :0]),
    "buffers": lambda events: ak.from_buffers(*ak.to_buffers(events)),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_made_of_them_is_the_same(use: str) -> None:
    expected, found = USES[use](JETS), USES[use](Buffers(JETS).lazily())
    assert found.to_list() == expected.to_list()
    assert found.type == expected.type


@pytest.mark.parametrize("use", USES)
def test_as_of_from_buffers(use: str) -> None:
    buffers = Buffers(JETS)
    eager = ak.from_buffers(buffers.form, buffers.length, buffers, buffer_key=name)
    found, expected = USES[use](buffers.lazily()), USES[use](eager)
    assert repr(found) == repr(expected)
    assert found.layout.is_equal_to(expected.layout, index_dtype=True, numpyarray=True)
    assert ak.almost_equal(found, expected, dtype_exact=True)
    assert found.layout.form == expected.layout.form


def test_a_copy_elsewhere_is_a_plain_array() -> None:
    events = Buffers(JETS).lazily()
    there = pickle.loads(pickle.dumps(events.layout))
    assert type(there) is ak.contents.RecordArray
    assert type(there.content("Jet").content) is ak.contents.RecordArray
    assert ak.Array(there).to_list() == JETS.to_list()
    assert copy.deepcopy(Buffers(JETS).lazily()).to_list() == JETS.to_list()


numbers = st.integers(-5, 5)
records = st.fixed_dictionaries(
    {"a": st.none() | numbers, "b": st.lists(st.lists(st.floats(0, 1))), "c": st.text(max_size=3)}
)


@given(st.lists(st.fixed_dictionaries({"x": numbers, "y": st.lists(records, max_size=3)})))
def test_any_nesting(rows: list[Any]) -> None:
    array = ak.Array(rows)
    assert Buffers(array).lazily().to_list() == rows
    if rows:
        assert Buffers(array).lazily()[::-1].to_list() == rows[::-1]


def test_a_buffer_that_is_too_short_is_an_error() -> None:
    buffers = Buffers(ak.Array({"x": np.arange(4)}))
    (key,) = buffers
    buffers[key] = lambda: np.arange(3)
    with pytest.raises(TypeError, match="less than size of form"):
        buffers.lazily().x.to_list()
