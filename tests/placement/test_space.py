from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.identity import JobIdentity, host_points, job_point, job_points
from hepcache.placement import host_distances, torus_distance
from hepcache.placement.space import _nearest_compiled, _nearest_plain, squared_distances

POINTS = st.binary(min_size=64, max_size=64).map(lambda b: np.frombuffer(b, np.uint8))


def naive(a: np.ndarray, b: np.ndarray) -> float:
    steps = [
        min(abs(int(x) - int(y)), 256 - abs(int(x) - int(y))) for x, y in zip(a, b, strict=True)
    ]
    return math.sqrt(sum(step * step for step in steps))


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


def points_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 64), dtype=np.uint8)


def test_squared_distances_are_exact_at_the_edges() -> None:
    points = np.concatenate([points_of(20, 1), np.full((1, 64), 128, np.uint8)])
    hosts = np.concatenate([points_of(7, 2), np.zeros((1, 64), np.uint8)]).reshape(4, 2, 64)
    found = squared_distances(points, hosts)
    for row, point in zip(found, points, strict=True):
        for value, salts in zip(row, hosts, strict=True):
            assert value == round(min(naive(point, salt) for salt in salts) ** 2)
    assert found[-1, -1] <= 64 * 128**2


@pytest.mark.parametrize("hosts", [1, 7, 16, 33])
def test_compiled_code_finds_what_numpy_finds(hosts: int) -> None:
    points = np.concatenate(
        [points_of(1500, 3), np.zeros((1, 64), np.uint8), np.full((1, 64), 128, np.uint8)]
    )
    salts = points_of(hosts * 8, 4)
    salts[::5] = 0
    salts = salts.reshape(hosts, 8, 64)
    squared = np.linspace(0.9, 1.1, hosts)
    count = min(hosts, 5)
    plain = _nearest_plain(points, salts, squared, count)
    compiled = _nearest_compiled(points, salts, squared, count)
    assert np.array_equal(plain[0], compiled[0])
    assert np.array_equal(plain[1], compiled[1])


def test_of_two_hosts_at_one_distance_the_first_is_nearer() -> None:
    points, salts = points_of(3, 5), points_of(8, 6).reshape(1, 8, 64)
    twins = np.concatenate([salts] * 5)
    for nearest in (_nearest_plain, _nearest_compiled):
        assert nearest(points, twins, np.ones(5), 3)[0].tolist() == [[0, 1, 2]] * 3


def test_points_of_many_jobs_are_the_points_of_each() -> None:
    jobs = [JobIdentity("u", "Events", i // 3) for i in range(10)]
    expected = np.stack([job_point(job) for job in jobs])
    assert np.array_equal(job_points(jobs), expected)
    assert job_points([]).shape == (0, 64)


def test_code_is_compiled_also_where_it_can_not_be_kept() -> None:
    from hepcache.placement.kernel import _compiled

    # Of code that is in no file, numba knows no place to keep what it compiles.
    space: dict[str, Any] = {}
    exec("def double(numbers):\n    numbers *= 2", space)
    numbers = np.arange(3.0)
    _compiled(space["double"])(numbers)
    assert numbers.tolist() == [0, 2, 4]
