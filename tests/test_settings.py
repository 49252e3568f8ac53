from __future__ import annotations

from pathlib import Path

import dask
import pytest

from hepcache.errors import ConfigurationError
from hepcache.settings import settings


def test_the_defaults_are_whole() -> None:
    with dask.config.set({"hepcache.cache.directory": None}):
        found = settings()
    assert (found.capacity_bytes, found.capacity_fraction) == (None, 0.8)
    assert (found.quota_bytes, found.quota_fraction) == (None, None)
    assert (found.run, found.cull, found.stop) == (0.07, 0.05, 0.01)
    assert (found.codec, found.admit, found.verify) == ("auto", "always", "first-use")
    assert found.memory_bytes == 320 << 20
    assert found.group_directory is None


def test_sizes_are_bytes_or_parts() -> None:
    changed = {
        "hepcache.cache.capacity": "200 GiB",
        "hepcache.cache.quota": "20%",
        "hepcache.cache.group": "~/group",
        "hepcache.cache.run": 10,
    }
    with dask.config.set(changed):
        found = settings()
    assert (found.capacity_bytes, found.capacity_fraction) == (200 << 30, None)
    assert (found.quota_bytes, found.quota_fraction) == (None, 0.2)
    assert found.group_directory == Path("~/group").expanduser()
    assert found.run == 0.1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cache.capacity", None),
        ("cache.capacity", "much"),
        ("cache.capacity", "120%"),
        ("cache.quota", "0%"),
        ("cache.stop", "6%"),
        ("cache.run", "high"),
        ("cache.codec", "gzip"),
        ("cache.admit", "never"),
        ("cache.verify", "sometimes"),
        ("cache.memory", "some"),
        ("segment.entries", 0),
        ("placement.epsilon", -0.1),
        ("placement.duplicates", 1),
        ("placement.duplicates", "many"),
        ("origin.bandwidth", "fast"),
    ],
)
def test_a_bad_value_is_named_with_its_key(key: str, value: object) -> None:
    expected = "cache.run" if key == "cache.stop" else key
    with (
        dask.config.set({f"hepcache.{key}": value}),
        pytest.raises(ConfigurationError, match=f"hepcache.{expected}"),
    ):
        settings()
