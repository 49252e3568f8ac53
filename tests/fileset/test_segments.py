"""Segments of a file, and chunks cut at their boundaries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import ConfigurationError
from hepcache.fileset.segments import cut, overlapping, segment_boundaries, segment_of


@st.composite
def cluster_lists(draw: st.DrawFn) -> tuple[int, ...]:
    lengths = draw(st.lists(st.integers(1, draw(st.sampled_from([3, 50, 1000]))), max_size=40))
    boundaries = [0]
    for length in lengths:
        boundaries.append(boundaries[-1] + length)
    return tuple(boundaries)


targets = st.integers(1, 300)


@given(cluster_lists(), targets)
def test_segments_cover_all_entries_once(clusters: tuple[int, ...], target: int) -> None:
    boundaries = segment_boundaries(clusters, target)
    assert boundaries[0] == 0
    assert boundaries[-1] == clusters[-1]
    assert all(a < b for a, b in itertools.pairwise(boundaries))


@given(cluster_lists(), targets)
def test_segments_end_at_clusters_unless_a_cluster_is_too_long(
    clusters: tuple[int, ...], target: int
) -> None:
    long = [(a, b) for a, b in itertools.pairwise(clusters) if b - a > 2 * target]
    for boundary in segment_boundaries(clusters, target):
        inside = [(a, b) for a, b in long if a < boundary < b]
        assert boundary in clusters or inside


@given(cluster_lists(), targets)
def test_segments_are_near_the_target(clusters: tuple[int, ...], target: int) -> None:
    boundaries = segment_boundaries(clusters, target)
    for start, stop in itertools.pairwise(boundaries):
        assert stop - start <= 2 * target
        whole = {start, stop} <= {*clusters}  # else a part of a cluster that is too long
        if whole and stop - start < target and stop != clusters[-1]:
            # One cluster more would have been further from the target, or too long to join.
            following = clusters[clusters.index(stop) + 1]
            assert following - start - target >= target - (stop - start)


@given(cluster_lists(), targets)
def test_no_short_rest_is_left_where_it_fits(clusters: tuple[int, ...], target: int) -> None:
    boundaries = segment_boundaries(clusters, target)
    if len(boundaries) > 2:
        whole = {*boundaries[-3:]} <= {*clusters}
        assert not whole or 2 * (boundaries[-1] - boundaries[-3]) > 3 * target


@given(st.integers(1, 5000), targets)
def test_a_long_cluster_is_cut_evenly(entries: int, target: int) -> None:
    boundaries = segment_boundaries((0, entries), target)
    lengths = [b - a for a, b in itertools.pairwise(boundaries)]
    assert max(lengths) - min(lengths) <= 1


@given(cluster_lists(), targets, st.data())
def test_segment_of_agrees_with_a_search(
    clusters: tuple[int, ...], target: int, data: st.DataObject
) -> None:
    boundaries = segment_boundaries(clusters, target)
    if clusters[-1] == 0:
        assert segment_of(boundaries, 0) == 0
        return
    entry = data.draw(st.integers(0, clusters[-1] - 1))
    assert segment_of(boundaries, entry) == max(b for b in boundaries if b <= entry)


@given(cluster_lists(), targets, st.data())
def test_overlapping_agrees_with_a_search(
    clusters: tuple[int, ...], target: int, data: st.DataObject
) -> None:
    boundaries = segment_boundaries(clusters, target)
    start = data.draw(st.integers(0, clusters[-1]))
    stop = data.draw(st.integers(start, clusters[-1]))
    segments = list(itertools.pairwise(boundaries))
    naive = [(a, b) for a, b in segments if a < stop and start < b and start < stop]
    assert overlapping(boundaries, start, stop) == naive


@pytest.mark.parametrize("clusters", [(), (1, 2), (0, 5, 5), (0, 5, 3)])
def test_boundaries_that_are_none_are_refused(clusters: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="increase from 0"):
        segment_boundaries(clusters, 10)


def test_arguments_outside_the_file_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="target"):
        segment_boundaries((0, 10), 0)
    for entry in (-1, 10):
        with pytest.raises(ConfigurationError, match="entry"):
            segment_of((0, 10), entry)
    for start, stop in [(-1, 3), (3, 11), (5, 4)]:
        with pytest.raises(ConfigurationError, match="inside 0 to 10"):
            overlapping((0, 10), start, stop)


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
