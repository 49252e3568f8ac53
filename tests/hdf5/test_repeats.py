"""Events in more than one file: found, and only looked for where files may share some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.hdf5 import repeats
from hepcache.hdf5.gather import gather, survey_all
from hepcache.hdf5.keys import repeated_events
from hepcache.hdf5.pool import InlineExecutor
from hepcache.hdf5.repeats import Listed

small = st.integers(0, 3)
events = st.sets(st.tuples(small, small, small), min_size=1, max_size=6)


def columns(rows: Any) -> dict[bytes, np.ndarray]:
    values = np.array(sorted(rows), dtype=np.uint32).reshape(-1, 3)
    return {name: values[:, n] for n, name in enumerate((b"run", b"subrun", b"evt"))}


@given(files=st.lists(events, max_size=6), memory=st.sampled_from([1, 1 << 20]))
def test_what_is_in_two_files_is_found(files: list[set[Any]], memory: int) -> None:
    listed = Listed(memory)
    for one in files:
        listed.add(columns(one))
    found = listed.repeated()
    listed.close()
    assert bool(found) == (sum(map(len, files)) > len(set().union(*files)))
    if found:
        event = tuple(int(part.split()[1]) for part in found.split(", "))
        assert sum(event in one for one in files) > 1


def test_files_of_other_subruns_are_never_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(tables: Any) -> str:
        compared.append(len(tables))
        return repeated_events(tables)

    monkeypatch.setattr(repeats, "repeated_events", counted)
    listed = Listed(1)
    for subrun in (1, 2, 3, 2, 5):
        start = 10 * len(listed._places)
        listed.add(columns((7, subrun, start + event) for event in range(10)))
    assert not listed.repeated()
    assert compared == []  # not even those of subrun 2, whose events have other numbers
    listed.add(columns((7, subrun, 15) for subrun in (1, 4)))
    assert not listed.repeated()
    assert compared == [2]
    listed.close()
    # Numbers so large that a float would confuse them.
    large = Listed(1)
    for event in (2**63 + 1, 2**63 + 2):
        large.add({b"run": np.array([1]), b"evt": np.array([event], "u8")})
    assert not large.repeated()
    large.close()


def test_numbers_alone_tell_no_events_of_two_files() -> None:
    listed = Listed(1)
    for _ in range(2):
        listed.add({b"evt": np.arange(3)})
    assert not listed.repeated()
    listed.close()


def test_thousands_of_files_share_what_is_equal(inputs: list[Path]) -> None:
    found = gather(survey_all([str(path) for path in inputs], InlineExecutor()), key="evt")
    one, *others = found.tables
    for other in others:
        assert other.filled is one.filled
        assert other.fixed is one.fixed
        assert not len(other.lengths)
    number = found.schema.by_path()[b"rec.vtx/x"]
    assert found.place(1, number).length == found.rows[1, found.schema.columns[number].group] > 0
