from __future__ import annotations

import numpy as np
import pytest

from hepcache.identity import host_points
from hepcache.placement import distance_factors
from hepcache.placement.law import law
from hepcache.placement.space import nearest_hosts, squared_distances


def shares_found(factors: dict[str, float], jobs: int) -> np.ndarray:
    """Return the share of each host, in the order of names, of random jobs."""
    names = sorted(factors)
    points = np.random.default_rng(11).integers(0, 256, (jobs, 64), dtype=np.uint8)
    hosts = np.stack([host_points(name) for name in names])
    found, _ = nearest_hosts(points, hosts, np.array([factors[name] for name in names]), 1)
    return np.bincount(found[:, 0], minlength=len(names)) / jobs


@pytest.mark.parametrize(
    ("hosts", "jobs", "most"),
    [(2, 300_000, 1), (2, 300_000, 10), (7, 600_000, 1), (7, 600_000, 10), (40, 600_000, 10)],
)
def test_shares_are_met_within_a_per_cent(hosts: int, jobs: int, most: float) -> None:
    wanted = {f"node-{i}": one for i, one in enumerate(np.linspace(1, most, hosts).tolist())}
    expected = np.array([wanted[name] for name in sorted(wanted)])
    expected /= expected.sum()
    noise = np.sqrt(expected * (1 - expected) / jobs)
    found = shares_found(distance_factors(wanted), jobs)
    assert np.all(np.abs(found - expected) <= 0.01 * expected + 3.5 * noise)
    # All hosts together leave much less to chance than each alone.
    excess = np.mean(((found - expected) / expected) ** 2 - (noise / expected) ** 2)
    assert excess <= 0.006**2


def test_221_equal_shares_become_more_equal_than_the_published_rule_makes_them() -> None:
    wanted = {f"slot-{i}": 1.0 for i in range(221)}
    jobs = 200_000
    noise = 221 / jobs

    def spread(factors: dict[str, float]) -> float:
        return float(np.mean((shares_found(factors, jobs) * 221 - 1) ** 2)) - noise

    published = spread(distance_factors(wanted, exact=False))
    assert published > 0.008**2
    assert spread(distance_factors(wanted)) < published / 2


def test_shares_alone_decide_where_nothing_exact_is_asked() -> None:
    few = distance_factors({"a": 1, "b": 3}, exact=False)
    other = distance_factors({"x": 2, "y": 6}, exact=False)
    assert list(few.values()) == list(other.values())
    assert few["b"] < 1 < few["a"]
    assert set(distance_factors({f"h{i}": 5 for i in range(9)}, exact=False).values()) == {1.0}


def test_shares_alone_are_met_within_a_few_per_cent() -> None:
    wanted = {f"node-{i}": 1.0 + i for i in range(7)}
    found = shares_found(distance_factors(wanted, exact=False), 300_000)
    expected = np.arange(1, 8) / 28
    assert np.all(np.abs(found / expected - 1) < 0.05)


def test_a_single_host_and_wrong_shares() -> None:
    assert distance_factors({"a": 4.0}) == {"a": 1.0}
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="positive"):
            distance_factors({"a": 1.0, "b": wrong})


def test_factors_are_the_same_whatever_the_order_and_the_unit() -> None:
    one = distance_factors({"a": 1.0, "b": 2.0, "c": 4.0})
    assert distance_factors({"c": 2.0, "a": 0.5, "b": 1.0}) == one
    assert np.prod(list(one.values())) == pytest.approx(1, abs=1e-5)


def test_the_law_is_that_of_random_points() -> None:
    rng = np.random.default_rng(3)
    points = rng.integers(0, 256, (200_000, 64), dtype=np.uint8)
    squares = squared_distances(points, np.zeros((1, 1, 64), np.uint8))[:, 0]
    below = law().probability(law().standard(np.array([200e3, 280e3, 350e3, 420e3])))
    for threshold, expected in zip((200e3, 280e3, 350e3, 420e3), below, strict=True):
        found = np.mean(squares <= threshold)
        assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / len(squares)) + 1e-5
    # One minus the parts of the waves left out.
    assert 0.98 < sum(law().harmonics) < 1
