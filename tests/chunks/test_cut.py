from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.chunks import cut, segment_boundaries
from hepcache.errors import ConfigurationError


@st.composite
def files(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Clusters and segments of one file."""
    lengths = draw(st.lists(st.integers(1, 200), max_size=40))
    clusters = [0]
    for length in lengths:
        clusters.append(clusters[-1] + length)
    return tuple(clusters), segment_boundaries(clusters, draw(st.integers(1, 300)))


def like_coffea(entries: int, chunksize: int) -> Iterator[tuple[int, int]]:
    """Cut a whole file the way coffea 2026 does."""
    length = math.ceil(entries / max(round(entries / chunksize), 1))
    for start in range(0, entries, length):
        yield start, min(start + length, entries)


@given(files(), st.integers(1, 1000), st.booleans())
def test_chunks_cover_all_entries_once(
    file: tuple[tuple[int, ...], tuple[int, ...]], chunksize: int, align: bool
) -> None:
    clusters, boundaries = file
    chunks = cut(boundaries, chunksize, clusters=clusters if align else None)
    assert chunks[0][0] == 0
    assert chunks[-1][1] == boundaries[-1]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(chunks))
    assert boundaries[-1] == 0 or all(start < stop for start, stop in chunks)


@given(files(), st.integers(1, 1000), st.booleans())
def test_a_chunk_is_whole_segments_or_lies_inside_one(
    file: tuple[tuple[int, ...], tuple[int, ...]], chunksize: int, align: bool
) -> None:
    clusters, boundaries = file
    for start, stop in cut(boundaries, chunksize, clusters=clusters if align else None):
        inner = [b for b in boundaries if start < b < stop]
        whole = start in boundaries and stop in boundaries
        assert whole or not inner
        if inner:
            assert stop - start <= chunksize


@given(files(), st.integers(1, 1000))
def test_chunks_hold_as_many_segments_as_fit(
    file: tuple[tuple[int, ...], tuple[int, ...]], chunksize: int
) -> None:
    _, boundaries = file
    for start, stop in cut(boundaries, chunksize):
        if start in boundaries and stop in boundaries and stop != boundaries[-1]:
            following = boundaries[boundaries.index(stop) + 1]
            assert following - start > chunksize
        assert stop - start <= max(1.5 * chunksize, 2)


@given(files(), st.integers(1, 1000))
def test_aligned_chunks_end_at_clusters_where_the_segments_do(
    file: tuple[tuple[int, ...], tuple[int, ...]], chunksize: int
) -> None:
    clusters, boundaries = file
    for start, stop in cut(boundaries, chunksize, clusters=clusters):
        assert {start, stop} <= {*clusters, *boundaries}


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_a_file_of_one_segment_is_cut_as_coffea_cuts_it(entries: int, chunksize: int) -> None:
    assert cut((0, entries), chunksize) == list(like_coffea(entries, chunksize))


@pytest.mark.parametrize("clusters", [None, (0,)])
def test_a_file_without_entries_is_one_empty_chunk(clusters: tuple[int, ...] | None) -> None:
    assert cut((0,), 100, clusters=clusters) == [(0, 0)]


def test_a_chunksize_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="chunksize"):
        cut((0, 10), 0)
