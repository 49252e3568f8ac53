"""What of RADOS can be tried without Ceph; the rest is in tests/live/objectstore."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from hepcache.objectstore import Request
from hepcache.objectstore.rados import _library, _VectorRead, passing_retried


def test_what_passes_is_asked_for_again() -> None:
    answers = iter([-errno.EAGAIN, -errno.EBUSY, 7])
    assert passing_retried(lambda: next(answers), 30.0) == 7


def test_what_does_not_pass_is_the_answer() -> None:
    answers = iter([-errno.EAGAIN, -errno.ENOENT, 7])
    assert passing_retried(lambda: next(answers), 30.0) == -errno.ENOENT
    assert passing_retried(lambda: -errno.EAGAIN, 0.3) == -errno.EAGAIN


class _Answer:
    def __init__(self, value: int) -> None:
        self.value = value

    def wait(self) -> int:
        return self.value


def test_a_range_is_asked_for_again() -> None:
    try:
        _library()
    except ImportError:
        pytest.skip("librados is not installed")
    answers = {"a": [-errno.EAGAIN, -errno.EAGAIN, 4], "b": [3]}

    def launch(request: Request, target: np.ndarray, _: object) -> _Answer:
        value = answers[request.name].pop(0)
        target[:] = ord(request.name) if value > 0 else 0
        return _Answer(value)

    found: list[int] = []
    read = _VectorRead(
        [Request("a", 0, 4), Request("b", 0, 3)],
        np.zeros(7, np.uint8),
        launch,  # type: ignore[arg-type]
        lambda _, value: found.append(value),
        2,
        30.0,
    )
    assert [bytes(part) for part in read.result()] == [b"aaaa", b"bbb"]
    assert found == [4, 3]
