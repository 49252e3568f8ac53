from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.chunks import overlapping, segment_boundaries, segment_of
from hepcache.errors import ConfigurationError


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
