"""Page lists: the bytes that are stored, and what is made of them when it is asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.rntuple.envelopes import IN_FILE, EnvelopeKind, opened_envelope
from hepcache.rntuple.pagelist import (
    Cluster,
    ColumnPages,
    LazyList,
    pack_page_list,
    unpack_page_list,
)

NUMBERS = st.integers(0, (1 << 32) - 1)


@st.composite
def columns(draw):
    count = draw(st.integers(0, 5))
    kind = draw(st.sampled_from(["file", "objects", "mixed"]))
    places = {
        "file": st.just(IN_FILE),
        "objects": NUMBERS,
        "mixed": st.one_of(st.just(IN_FILE), NUMBERS),
    }[kind]

    def take(strategy):
        return draw(st.lists(strategy, min_size=count, max_size=count))

    suppressed = draw(st.booleans()) and not count
    sizes = st.integers(0, (1 << 31) - 1) if draw(st.booleans()) else st.integers(0, 1 << 34)
    return ColumnPages(
        elements=np.array(take(st.integers(1, 1 << 30)), np.int64),
        objects=np.array(take(places), np.int64),
        offsets=np.array(take(st.integers(0, 1 << 40) if kind == "file" else NUMBERS), np.int64),
        nbytes=np.array(take(sizes), np.int64),
        checksummed=np.array(take(st.booleans()), np.bool_),
        first_element=0 if suppressed else draw(st.integers(0, 1 << 60)),
        compression=None if suppressed else draw(st.integers(0, 599)),
    )


@given(st.lists(st.lists(columns(), max_size=4), max_size=3))
def test_page_lists(clusters):
    wanted = [Cluster(10 * i, 10, tuple(columns)) for i, columns in enumerate(clusters)]
    data = pack_page_list(77, wanted)
    checksum, found = unpack_page_list(opened_envelope(EnvelopeKind.PAGE_LIST, memoryview(data)))
    assert checksum == 77
    assert [(c.first_entry, c.entries) for c in found] == [(10 * i, 10) for i in range(len(found))]
    for written, read in zip(wanted, found, strict=True):
        for a, b in zip(written.columns, read.columns, strict=True):
            for name in ("elements", "objects", "offsets", "nbytes", "checksummed"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
            assert (a.first_element, a.compression) == (b.first_element, b.compression)


def test_items_of_a_lazy_list_are_made_once_and_only_when_asked_for():
    made = []

    def make(index):
        made.append(index)
        return index * index

    squares = LazyList(10, make)
    assert len(squares) == 10
    assert made == []
    assert [squares[3], squares[-1], squares[3]] == [9, 81, 9]
    assert made == [3, 9]
    assert squares[2:5] == [4, 9, 16]
    assert list(squares) == [index * index for index in range(10)]
    with pytest.raises(IndexError):
        squares[10]
