from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hepcache.eventstore.ingestion.classes import gather_rows, number_events

number = st.one_of(st.integers(0, 3), st.integers(2**64 - 3, 2**64 - 1))
rows = st.lists(st.tuples(number, number, number), max_size=40)


def columns(table: list[tuple[int, int, int]]) -> list[np.ndarray]:
    return list(np.array(table, "u8").reshape(-1, 3).T)


@given(rows)
def test_rows_are_gathered_by_event_and_keep_their_order(
    table: list[tuple[int, int, int]],
) -> None:
    found = gather_rows(*columns(table))
    expected = sorted(range(len(table)), key=lambda row: table[row])  # stable
    order = range(len(table)) if found.order is None else found.order.tolist()
    assert list(order) == expected
    ids = list(
        zip(*(getattr(found.ids, n).tolist() for n in ("run", "subrun", "event")), strict=True)
    )
    assert ids == sorted(set(table))
    assert found.counts.tolist() == [table.count(one) for one in ids]
    edges = found.ids.subrun_edges().tolist()
    assert edges[0] == 0
    assert edges[-1] == len(ids)
    for low, high in itertools.pairwise(edges):
        assert len({one[:2] for one in ids[low:high]}) == 1
    assert len(edges) - 1 == len({one[:2] for one in ids})


@given(st.lists(rows, max_size=4))
def test_events_of_several_tables_are_numbered_alike(
    tables: list[list[tuple[int, int, int]]],
) -> None:
    parts = [gather_rows(*columns(one)).ids for one in tables]
    ids, places = number_events(parts)
    every = sorted({one for table in tables for one in table})
    assert list(zip(ids.run, ids.subrun, ids.event, strict=True)) == every
    for table, at in zip(tables, places, strict=True):
        assert [every[place] for place in at] == sorted(set(table))
