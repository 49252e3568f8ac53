"""Distance factors that give hosts their shares, and shares by what hosts have done."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement import distance_factors
from hepcache.placement.identity import host_points
from hepcache.placement.shares import Measured, calibrate, distance_distribution
from hepcache.placement.torus import nearest_hosts, squared_distances


def shares_found(factors: dict[str, float], jobs: int) -> np.ndarray:
    """Return the share of each host, in the order of names, of random jobs."""
    names = sorted(factors)
    points = np.random.default_rng(11).integers(0, 256, (jobs, 64), dtype=np.uint8)
    hosts = np.stack([host_points(name) for name in names])
    found, _ = nearest_hosts(points, hosts, np.array([factors[name] for name in names]), 1)
    return np.bincount(found[:, 0], minlength=len(names)) / jobs


def test_shares_alone_decide() -> None:
    few = distance_factors({"a": 1, "b": 3})
    other = distance_factors({"x": 2, "y": 6})
    assert list(few.values()) == list(other.values())
    assert few["b"] < 1 < few["a"]
    assert set(distance_factors({f"h{i}": 5 for i in range(9)}).values()) == {1.0}


def test_shares_alone_are_met_within_a_few_per_cent() -> None:
    wanted = {f"node-{i}": 1.0 + i for i in range(7)}
    found = shares_found(distance_factors(wanted), 300_000)
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
    distribution = distance_distribution()
    below = distribution.probability(distribution.standard(np.array([200e3, 280e3, 350e3, 420e3])))
    for threshold, expected in zip((200e3, 280e3, 350e3, 420e3), below, strict=True):
        found = np.mean(squares <= threshold)
        assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / len(squares)) + 1e-5


SHARES = {"a": 8.0, "b": 8.0, "c": 16.0}


def after(throughput: dict[str, float], samples: int = 10_000) -> dict[str, float]:
    measured = {name: Measured(value, samples) for name, value in throughput.items()}
    return calibrate(SHARES, measured)


def test_hosts_that_do_their_share_keep_it_to_the_last_digit() -> None:
    assert after({"a": 80.0, "b": 80.0, "c": 160.0}) == SHARES
    assert after({"a": 82.0, "b": 78.0, "c": 161.0}) == SHARES
    assert calibrate(SHARES, {}) == SHARES
    assert calibrate(SHARES, {"a": Measured(5.0, 100)}) == SHARES


def test_a_fast_host_gets_more_and_a_slow_one_less() -> None:
    found = after({"a": 120.0, "b": 60.0, "c": 180.0})
    assert found["a"] > 8 > found["b"]
    assert found["c"] == 16


def test_what_may_be_chance_changes_nothing() -> None:
    assert after({"a": 100.0, "b": 80.0, "c": 160.0}, samples=20) == SHARES
    assert after({"a": 100.0, "b": 80.0, "c": 160.0}, samples=2000) != SHARES


def test_a_step_is_damped_and_bounded() -> None:
    found = after({"a": 8000.0, "b": 80.0, "c": 160.0})
    assert found["a"] == pytest.approx(8 * 1.5)
    mild = after({"a": 100.0, "b": 80.0, "c": 160.0})
    common = 340 / 32
    assert mild["a"] == pytest.approx(8 * (100 / 8 / common) ** 0.7)


def test_hosts_without_measurements_keep_their_share() -> None:
    measured = {
        "a": Measured(160.0, 1000),
        "b": Measured(80.0, 1000),
        "c": Measured(0.0, 0),
        "unknown": Measured(1e9, 1000),
    }
    assert calibrate(SHARES, measured)["c"] == 16


@given(
    st.lists(st.floats(0.3, 3.0), min_size=2, max_size=20), st.integers(0, 2**32), st.booleans()
)
def test_shares_settle_where_all_finish_together(
    speeds: list[float], seed: int, start_equal: bool
) -> None:
    rng = random.Random(seed)
    names = [f"h{i}" for i in range(len(speeds))]
    shares = {name: 1.0 if start_equal else rng.uniform(0.5, 2) for name in names}
    for _ in range(30):
        measured = {
            # Each run is off by a per cent.
            name: Measured(100 * speed * rng.gauss(1, 0.01), 5000)
            for name, speed in zip(names, speeds, strict=True)
        }
        before, shares = shares, calibrate(shares, measured)
    took = [shares[name] / speed for name, speed in zip(names, speeds, strict=True)]
    assert max(took) / min(took) < 1.2
    # Settled: chance of a per cent moves nothing any more, or a deviation at its edge once, which
    # of two hosts is the other's, too.
    assert sum(before[name] != shares[name] for name in names) <= max(2, len(names) // 4)


def test_noise_alone_moves_nothing_in_a_hundred_runs() -> None:
    rng = random.Random(2)
    shares = dict.fromkeys((f"h{i}" for i in range(20)), 4.0)
    for _ in range(100):
        measured = {name: Measured(rng.gauss(400, 400 * 0.3 / 10), 100, 0.3) for name in shares}
        assert calibrate(shares, measured) == shares


def test_order_does_not_matter_and_nonsense_is_refused() -> None:
    throughput = {"a": 123.4, "b": 56.7, "c": 89.1}
    backwards = calibrate(
        dict(reversed(SHARES.items())),
        {name: Measured(throughput[name], 10_000) for name in reversed(throughput)},
    )
    assert backwards == after(throughput)
    with pytest.raises(ValueError, match="positive"):
        calibrate({"a": 0.0, "b": 1.0}, {})
