from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hepcache.identity import JobIdentity, host_points, job_point
from hepcache.placement import host_distances, torus_distance

POINTS = st.binary(min_size=64, max_size=64).map(lambda b: np.frombuffer(b, np.uint8))


def naive(a: np.ndarray, b: np.ndarray) -> float:
    steps = [
        min(abs(int(x) - int(y)), 256 - abs(int(x) - int(y))) for x, y in zip(a, b, strict=True)
    ]
    return sum(step * step for step in steps) ** 0.5


@given(POINTS, POINTS)
def test_distance_is_the_shortest_way_round_each_circle(a: np.ndarray, b: np.ndarray) -> None:
    assert float(torus_distance(a, b)) == naive(a, b)
    assert torus_distance(a, b) == torus_distance(b, a)


@given(POINTS, POINTS, POINTS)
def test_distance_is_a_metric(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    assert torus_distance(a, a) == 0
    assert torus_distance(a, c) <= torus_distance(a, b) + torus_distance(b, c) + 1e-9


def test_opposite_points_are_exactly_128_apart() -> None:
    a = np.zeros(64, np.uint8)
    assert float(torus_distance(a, a + np.uint8(128))) == (64 * 128**2) ** 0.5


def test_points_are_sha512_digests() -> None:
    job = JobIdentity("6ac7019c", "Events", 100_000)
    digest = hashlib.sha512(b"6ac7019c/Events/100000").digest()
    assert job_point(job).tobytes() == digest
    assert host_points("w1").shape == (8, 64)
    assert host_points("w1")[7].tobytes() == hashlib.sha512(b"w1/8").digest()


def test_host_distances_are_to_the_nearest_salt() -> None:
    jobs = [JobIdentity("u", "Events", segment) for segment in range(5)]
    found = host_distances(jobs, ["a", "b"])
    for row, job in zip(found, jobs, strict=True):
        for value, host in zip(row, "ab", strict=True):
            expected = min(naive(job_point(job), point) for point in host_points(host))
            assert abs(float(value) - expected) < 1e-3
