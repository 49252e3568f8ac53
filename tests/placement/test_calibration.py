from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.placement.calibration import Measured, calibrate

SHARES = {"a": 8.0, "b": 8.0, "c": 16.0}


def after(
    throughput: dict[str, float], samples: int = 10_000, **options: float
) -> dict[str, float]:
    measured = {name: Measured(value, samples) for name, value in throughput.items()}
    return calibrate(SHARES, measured, **options)


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
    mild = after({"a": 100.0, "b": 80.0, "c": 160.0}, damping=0.5)
    common = 340 / 32
    assert mild["a"] == pytest.approx(8 * math.sqrt(100 / 8 / common))


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
    # Settled: chance of a per cent moves nothing any more, or a deviation at its edge once.
    assert sum(before[name] != shares[name] for name in names) <= max(1, len(names) // 4)


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
    for options in ({"damping": 0.0}, {"largest_step": 1.0}, {"tolerance": -0.1}):
        with pytest.raises(ValueError, match="expected"):
            calibrate(SHARES, {}, **options)
    with pytest.raises(ValueError, match="positive"):
        calibrate({"a": 0.0, "b": 1.0}, {})
