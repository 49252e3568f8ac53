"""Which event a row belongs to; events in more than one file are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.hdf5 import keys
from hepcache.hdf5.keys import DuplicateFinder, EventIndex, KeyRuns, join_runs, repeated_event

small = st.integers(0, 3)
events = st.sets(st.tuples(small, small, small), min_size=1, max_size=6)


def columns(rows: Any) -> dict[bytes, np.ndarray]:
    values = np.array(sorted(rows), dtype=np.uint32).reshape(-1, 3)
    return {name: values[:, n] for n, name in enumerate((b"run", b"subrun", b"evt"))}


def test_events_in_any_order_of_numbers() -> None:
    table = EventIndex({b"run": np.array([2, 1, 1]), b"evt": np.array([5, 9, 5])})
    runs = table.runs({b"run": np.array([2, 2, 1, 1]), b"evt": np.array([5, 5, 9, 5])})
    assert (runs.events.tolist(), runs.rows.tolist()) == ([0, 1, 2], [2, 1, 1])
    with pytest.raises(ValueError, match="earlier event"):
        table.runs({b"run": np.array([1, 2]), b"evt": np.array([9, 5])})
    with pytest.raises(ValueError, match="first run 3, evt 5"):
        table.runs({b"run": np.array([2, 3]), b"evt": np.array([5, 5])})
    with pytest.raises(ValueError, match="twice"):
        EventIndex({b"run": np.array([1, 1]), b"evt": np.array([5, 5])})
    empty = EventIndex({b"evt": np.zeros(0, int)})
    assert empty.runs({b"evt": np.zeros(0, int)}).events.tolist() == []
    with pytest.raises(ValueError, match="not in the table"):
        empty.runs({b"evt": np.array([1])})
    with pytest.raises(ValueError, match="in the table of events"):
        EventIndex({b"evt": np.array([1], "u8")}).runs({b"evt": np.array([1], "i8")})
    assert repeated_event([{b"evt": np.array([3, 1])}, {b"evt": np.array([2, 1])}]) == "evt 1"


def test_runs_that_go_on_in_the_next_slice() -> None:
    first, other = (
        KeyRuns(np.array(events), np.array(rows))
        for events, rows in (([0, 2], [1, 3]), ([2, 5], [4, 1]))
    )
    whole = join_runs([first, other])
    assert whole.rows.sum() == 9
    with pytest.raises(ValueError, match="order"):
        join_runs([other, first])


@given(files=st.lists(events, max_size=6), memory=st.sampled_from([1, 1 << 20]))
def test_what_is_in_two_files_is_found(files: list[set[Any]], memory: int) -> None:
    listed = DuplicateFinder(memory)
    for file in files:
        listed.add(columns(file))
    found = listed.first_duplicate()
    listed.close()
    assert bool(found) == (sum(map(len, files)) > len(set().union(*files)))
    if found:
        event = tuple(int(part.split()[1]) for part in found.split(", "))
        assert sum(event in file for file in files) > 1


def test_files_of_other_subruns_are_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(tables: Any) -> str:
        compared.append(len(tables))
        return repeated_event(tables)

    monkeypatch.setattr(keys, "repeated_event", counted)
    listed = DuplicateFinder(1)
    for subrun in (1, 2, 3, 2, 5):
        start = 10 * len(listed._stored)
        listed.add(columns((7, subrun, start + event) for event in range(10)))
    assert not listed.first_duplicate()
    assert compared == []  # not even those of subrun 2, whose events have other numbers
    listed.add(columns((7, subrun, 15) for subrun in (1, 4)))
    assert not listed.first_duplicate()
    assert compared == [2]
    listed.close()
    # Numbers so large that a float would confuse them.
    large = DuplicateFinder(1)
    for event in (2**63 + 1, 2**63 + 2):
        large.add({b"run": np.array([1]), b"evt": np.array([event], "u8")})
    assert not large.first_duplicate()
    large.close()


def test_numbers_alone_tell_no_events_of_two_files() -> None:
    listed = DuplicateFinder(1)
    for _ in range(2):
        listed.add({b"evt": np.arange(3)})
    assert not listed.first_duplicate()
    listed.close()
