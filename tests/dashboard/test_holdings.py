from __future__ import annotations

import numpy as np
import pytest

from hepcache.dashboard.holdings import ABSENT, COMPUTING, FULL, READING, WAITING, segments
from hepcache.identity import JobIdentity
from hepcache.placement.residency import Residency, pack

HOSTS = ["a", "b"]


def job(number: int, file: str = "u") -> JobIdentity:
    return JobIdentity(file, "Events", number)


@pytest.fixture
def residency() -> Residency:
    """Host a holds 0 and half of 1, host b all of 1."""
    found = Residency()
    columns = frozenset({"x"})
    found.report("a", pack({("u", "Events"): {0: (10, columns), 1: (5, columns)}}))
    found.report("b", pack({("u", "Events"): {1: (10, columns)}}))
    return found


def test_cells_say_how_much_is_held(residency):
    found = segments([job(n) for n in range(3)], HOSTS, residency)
    assert found.cells.tolist() == [[FULL, FULL // 2, ABSENT], [ABSENT, FULL, ABSENT]]
    assert found.held.tolist() == [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0]]
    assert found.resident == pytest.approx(2 / 3)
    assert (found.segments, found.files, found.edges) == (3, 1, (0,))


def test_cells_say_what_is_being_done(residency):
    pending = [
        ([job(0)], "a", True),
        ([job(2)], "a", True),
        ([job(0), job(2)], "b", False),
        ([job(1)], "b", False),
        ([job(2)], "gone", True),
        ([job(9)], "a", True),
    ]
    found = segments([job(n) for n in range(3)], HOSTS, residency, pending)
    assert found.cells.tolist() == [[COMPUTING, FULL // 2, READING], [WAITING, FULL, WAITING]]


def test_many_segments_share_cells(residency):
    jobs = [job(n) for n in range(10)] + [job(n, "v") for n in range(10)]
    found = segments(jobs, HOSTS, residency, [([job(4)], "b", True)], most=4)
    assert found.cells.shape == (2, 4)
    assert found.held[0].tolist() == pytest.approx([0.3, 0, 0, 0])
    assert found.cells[1, 0] == READING
    assert found.edges == (0, 2)
    assert found.files == 2


def test_a_little_held_is_seen(residency):
    found = segments([job(n) for n in range(1000)], HOSTS, residency, most=1)
    assert found.cells.tolist() == [[1], [1]]


@pytest.mark.parametrize(("jobs", "hosts"), [([], HOSTS), ([job(0)], [])])
def test_nothing_is_an_empty_map(residency, jobs, hosts):
    found = segments(jobs, hosts, residency)
    assert found.cells.shape == (len(hosts), len(jobs))
    assert found.cells.dtype == np.uint8
