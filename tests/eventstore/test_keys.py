"""Keys keep the order of what they stand for, and say which names and numbers are allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import ConfigurationError
from hepcache.eventstore.keys import (
    DatasetUrl,
    after,
    check_name,
    number_bytes,
    shard_of,
    split_path,
)

NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS, NUMBERS)
def test_numbers_order_as_their_bytes(one: int, other: int) -> None:
    assert (one < other) == (number_bytes(one) < number_bytes(other))


@pytest.mark.parametrize("bad", [-1, 2**64, True, 1.0, "1", None])
def test_numbers_outside_64_bits_are_refused(bad: object) -> None:
    with pytest.raises(ConfigurationError):
        number_bytes(bad)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken_whole() -> None:
    assert number_bytes(np.uint64(2**64 - 1)) == b"\xff" * 8


@pytest.mark.parametrize("bad", ["", "a/b", "a\nb", "a\0", "\x85", "\ud800", "x" * 256, 7])
def test_bad_names_are_refused(bad: object) -> None:
    with pytest.raises(ConfigurationError, match="control characters"):
        check_name(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("good", ["a", "ä b", "μ→e", ".", "x" * 255, "日本"])
def test_any_other_name_is_allowed(good: str) -> None:
    assert check_name(good) == good


def test_a_path_has_components() -> None:
    assert split_path("/a/b/") == ["a", "b"]
    with pytest.raises(ConfigurationError):
        split_path("a//b")


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_after_is_above_exactly_the_keys_with_a_prefix(prefix: bytes, rest: bytes) -> None:
    end = after(prefix)
    assert end is None or prefix + rest < end
    if end is not None:
        assert not end.startswith(prefix)


def test_the_shard_of_a_container_never_changes() -> None:
    # What is stored depends on it: a golden value.
    assert [shard_of(bytes([one]) * 32, 16) for one in range(8)] == [13, 9, 14, 9, 3, 14, 4, 14]


names = st.text(min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and "/" not in text
)


@given(st.lists(names, min_size=1, max_size=3), st.lists(st.integers(0, 2**64 - 1), max_size=2))
def test_urls_say_what_they_were_made_of(path: list[str], numbers: list[int]) -> None:
    url = DatasetUrl("file:///a/b?shards=2", "/".join(path), tuple(numbers))
    assert DatasetUrl.parse(str(url)) == url


@pytest.mark.parametrize(
    "text",
    ["events+mem://#a", "events+file:///a", "events+file:///a#", "file:///a#b",
     "events+file:///a#b:x", "events+file:///a#b:1/2/3"],
)  # fmt: skip
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="events"):
        DatasetUrl.parse(text)
