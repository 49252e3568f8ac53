"""Locks of byte ranges, and who has them after a fork."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hepcache.io.locks import ByteLocks, exclusive


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "locks"
    place.touch()
    return place


def test_one_claimant_at_a_time(path: Path) -> None:
    first, second = ByteLocks(path), ByteLocks(path)
    assert first.try_lock(7)
    assert not second.try_lock(7)
    assert second.try_lock(8)
    first.unlock(7)
    assert second.try_lock(7)
    second.close()
    assert first.try_lock(8)
    first.close()


def test_a_process_that_was_forked_meanwhile_keeps_no_lock(path: Path) -> None:
    """It has a copy of the descriptor; itself it would wait for what it holds, for ever."""
    reading, writing = os.pipe()
    with exclusive(path, 7):
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent ends
            os._exit(0)
    try:
        other = ByteLocks(path)
        assert other.try_lock(7)
        other.close()
    finally:
        os.close(reading)
        os.close(writing)
        os.waitpid(child, 0)
