from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement import torus
from hepcache.placement.identity import JobIdentity, host_points, job_points
from hepcache.placement.torus import nearest_hosts, points_of_hosts, squared_distances

POINTS = st.binary(min_size=64, max_size=64).map(lambda b: np.frombuffer(b, np.uint8))


def squared(a: np.ndarray, b: np.ndarray) -> int:
    return int(squared_distances(a[None], b[None, None])[0, 0])


def naive(a: np.ndarray, b: np.ndarray) -> float:
    steps = [
        min(abs(int(x) - int(y)), 256 - abs(int(x) - int(y))) for x, y in zip(a, b, strict=True)
    ]
    return math.sqrt(sum(step * step for step in steps))


@given(POINTS, POINTS)
def test_distance_is_the_shortest_way_round_each_circle(a: np.ndarray, b: np.ndarray) -> None:
    assert squared(a, b) == round(naive(a, b) ** 2)
    assert squared(a, b) == squared(b, a)


@given(POINTS, POINTS, POINTS)
def test_distance_is_a_metric(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    assert squared(a, a) == 0
    assert squared(a, c) ** 0.5 <= squared(a, b) ** 0.5 + squared(b, c) ** 0.5 + 1e-9


def test_opposite_points_are_exactly_128_apart() -> None:
    a = np.zeros(64, np.uint8)
    assert squared(a, a + np.uint8(128)) == 64 * 128**2


def test_points_are_sha512_digests() -> None:
    job = JobIdentity("6ac7019c", "Events", 100_000)
    digest = hashlib.sha512(b"6ac7019c/Events/100000").digest()
    assert job_points([job]).tobytes() == digest
    assert host_points("w1").shape == (8, 64)
    assert host_points("w1")[7].tobytes() == hashlib.sha512(b"w1/8").digest()


def test_host_distances_are_to_the_nearest_salt() -> None:
    jobs = [JobIdentity("u", "Events", segment) for segment in range(5)]
    points = job_points(jobs)
    found = squared_distances(points, points_of_hosts(("a", "b")))
    for row, own in zip(found, points, strict=True):
        for value, host in zip(row, "ab", strict=True):
            assert value == round(min(naive(own, point) for point in host_points(host)) ** 2)


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
def test_blocks_of_jobs_find_what_one_by_one_finds(
    hosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = np.concatenate(
        [points_of(300, 3), np.zeros((1, 64), np.uint8), np.full((1, 64), 128, np.uint8)]
    )
    salts = points_of(hosts * 8, 4)
    salts[::5] = 0
    salts = salts.reshape(hosts, 8, 64)
    factors = np.linspace(0.9, 1.1, hosts)
    count = min(hosts, 5)
    whole = nearest_hosts(points, salts, factors, count)
    monkeypatch.setattr("hepcache.placement.torus._ROWS", 64)
    monkeypatch.setattr("hepcache.placement.torus._PAIRS", 1 << 8)
    in_threads = nearest_hosts(points, salts, factors, count)
    assert np.array_equal(whole[0], in_threads[0])
    assert np.array_equal(whole[1], in_threads[1])
    for row, point in enumerate(points[-20:], start=len(points) - 20):
        squares = [
            round(min(naive(point, salt) for salt in host) ** 2) * factor**2
            for host, factor in zip(salts, factors, strict=True)
        ]
        assert whole[0][row].tolist() == np.argsort(squares, kind="stable")[:count].tolist()
        assert whole[1][row].tolist() == pytest.approx(sorted(squares)[:count], rel=1e-12)


@pytest.fixture(params=["numpy", "compiled"])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nearest_hosts use the one code or the other."""
    torus._compiled.cache_clear()
    if request.param == "compiled":
        monkeypatch.setattr(torus, "_LARGE", -1)
    yield
    torus._compiled.cache_clear()


@pytest.mark.parametrize("hosts", [1, 7, 16, 33])
def test_compiled_code_finds_what_numpy_finds(hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.concatenate(
        [points_of(1500, 3), np.zeros((1, 64), np.uint8), np.full((1, 64), 128, np.uint8)]
    )
    salts = points_of(hosts * 8, 4)
    salts[::5] = 0
    salts = salts.reshape(hosts, 8, 64)
    factors, count = np.linspace(0.9, 1.1, hosts), min(hosts, 5)
    torus._compiled.cache_clear()
    plain = nearest_hosts(points, salts, factors, count)
    monkeypatch.setattr(torus, "_LARGE", -1)
    compiled = nearest_hosts(points, salts, factors, count)
    assert torus._compiled.cache_info().currsize
    torus._compiled.cache_clear()
    assert np.array_equal(plain[0], compiled[0])
    assert np.array_equal(plain[1], compiled[1])


@pytest.mark.usefixtures("code")
def test_of_two_hosts_at_one_distance_the_first_is_nearer() -> None:
    points, salts = points_of(3, 5), points_of(8, 6).reshape(1, 8, 64)
    same = np.concatenate([salts] * 5)
    assert nearest_hosts(points, same, np.ones(5), 3)[0].tolist() == [[0, 1, 2]] * 3


def test_points_of_many_jobs_are_the_points_of_each() -> None:
    jobs = [JobIdentity("u", "Events", i // 3) for i in range(10)]
    expected = np.concatenate([job_points([job]) for job in jobs])
    assert np.array_equal(job_points(jobs), expected)
    assert job_points([]).shape == (0, 64)
