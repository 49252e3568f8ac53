from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import dask
import pytest

from hepcache.errors import ConfigurationError
from hepcache.settings import DEFAULTS, leaves, settings


def test_the_defaults_are_whole() -> None:
    with dask.config.set({"hepcache.cache.directory": None}):
        found = settings()
    assert (found.capacity_bytes, found.capacity_fraction) == (None, 0.8)
    assert (found.quota_bytes, found.quota_fraction) == (None, None)
    assert (found.cull, found.codec) == (0.05, "auto")
    assert found.group_directory is None


def test_sizes_are_bytes_or_parts() -> None:
    changed = {
        "hepcache.cache.capacity": "200 GiB",
        "hepcache.cache.quota": "20%",
        "hepcache.cache.group": "~/group",
        "hepcache.cache.cull": 10,
        "hepcache.origin.replicas": {"/store/": ["root://one//store/", "/store/"]},
    }
    with dask.config.set(changed):
        found = settings()
    assert found.origin_replicas == (("/store/", ("root://one//store/", "/store/")),)
    assert (found.capacity_bytes, found.capacity_fraction) == (200 << 30, None)
    assert (found.quota_bytes, found.quota_fraction) == (None, 0.2)
    assert found.group_directory == Path("~/group").expanduser()
    assert found.cull == 0.1


BAD = {
    "host": ["", True, 1.5, ["a"]],
    "user": ["", True, 1.5, ["a"]],
    "catalogue": ["", 3, "a\0b", "~nobody-of-that-name/c", False],
    "cache.mode": [None, "", 1, True, "Columns", ["columns"]],
    "cache.directory": ["", 0, ["a"], " "],
    "cache.group": ["", 7],
    "cache.group_origins": ["", 7, ["/store"], ["root://me@server//"], ["store/"], [7]],
    "cache.capacity": [None, "much", "120%", "0%", "-5 GB", -1, 0, "", "GB", "inf", "1e999", True],
    "cache.quota": ["0%", "-1%", -3, 0, "", "nan%", "5 foos"],
    "cache.cull": ["high", None, True, "-7%", "nan", "7%%", [7], "1e999", 0, "101%", "0%", ""],
    "cache.codec": ["gzip", None, "ZSTD"],
    "cache.neighbours": [None, 2, "yes", []],
    "cache.neighbours_rate": ["fast", 0, -1, "", True, "0 MB/s", [5]],
    "drain_file": ["", None, 1],
    "segment.entries": [0, -5, 1.5, "many", True, None, "100_000"],
    "placement.duplicates": [1, "many", -3, "nan", "inf", True, 10**400],
    "placement.lost_after": [0, "-1 s", "soon", "30 parsecs", "", "s", "nan", "inf", True, [30]],
    "origin.ahead": [-1, "-1 MiB", "plenty", None, False],
    "origin.replicas": [
        "/store/",
        ["/store/"],
        {"/store/": []},
        {"/store/": "root://one//store/"},
        {"/store/": ["root://one//store"]},
        {"/store/": [7]},
        {7: ["root://one//store"]},
        {"": ["root://one//store"]},
    ],
}


def test_every_setting_has_values_that_are_refused() -> None:
    assert BAD.keys() == dict(leaves(DEFAULTS["hepcache"])).keys()


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in BAD.items() for value in values]
)
def test_a_bad_value_is_named_with_its_key(key: str, value: object) -> None:
    with dask.config.set({f"hepcache.{key}": value}), pytest.raises(ConfigurationError) as caught:
        settings()
    error = caught.value
    assert (error.name, error.found, error.source) == (
        f"hepcache.{key}", value, "set in this process"
    )  # fmt: skip
    assert error.expected in str(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hepcache.cache.capcity": 1}, r"cache\.capcity: .*mean hepcache\.cache\.capacity\?"),
        ({"hepcache.cache": 5}, r"hepcache\.cache: expected settings below it.*found 5"),
        ({"hepcache": "raw"}, r"hepcache: expected settings below it"),
        ({"hepcache": {"cache.codec": "raw"}}, "not with dots between them"),
        ({"hepcache.host": {"name": "a"}}, r"hepcache\.host\.name: .*mean hepcache\.host\?"),
        ({"hepcache-cache.codec": "raw"}, r"mean hepcache\.cache\.codec\?"),
        ({"hep_cache.cache.codec": "raw"}, r"mean hepcache\.cache\.codec\?"),
        ({"hepcache.cache.stop": "1%"}, r"cache\.stop: .*setting is gone \(.*a fifth of hepcache"),
        ({"hepcache.origin.retries": 2}, r"origin\.retries: .*setting is gone \(.*6 s\), found 2"),
        ({"hepcache.cache.admit": "repeated"}, r"cache\.admit: expected the name of a setting"),
        ({"hepcache.cache.eviction": "lru"}, r"cache\.eviction: expected the name of a setting"),
    ],
)  # fmt: skip
def test_a_misspelt_key_is_refused(change: dict[str, object], words: str) -> None:
    before = deepcopy(dask.config.config)
    try:
        with dask.config.set(change), pytest.raises(ConfigurationError, match=words):
            settings()
    finally:
        assert dask.config.config == before


def test_what_is_left_out_is_as_by_default() -> None:
    with dask.config.set({"hepcache": {"cache": {"codec": "raw"}, "origin": None}}):
        found = settings()
    assert (found.codec, found.origin_ahead_bytes) == ("raw", 128 << 20)


def test_names_of_settings_may_be_written_with_hyphens() -> None:
    with dask.config.set({"hepcache.placement": {"lost-after": "9 s"}}):
        assert settings().lost_after_s == 9
