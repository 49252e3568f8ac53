from __future__ import annotations

from pathlib import Path

import dask
import pytest
import yaml

from hepcache.settings import as_yaml, configured


def source_of(key: str, env: dict[str, str] | None = None) -> tuple[object, str]:
    one = next(one for one in configured(env or {}).settings if one.key == key)
    return one.value, one.source


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dask.config, "paths", [str(tmp_path / "etc"), str(tmp_path / "home")])
    for name in ("etc", "home"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_default_says_so() -> None:
    assert source_of("segment.entries") == (100_000, "default")


def test_the_environment_counts_more_than_files_and_later_files_more(files: Path) -> None:
    site, own = files / "etc/hepcache.yaml", files / "home/hepcache.yaml"
    site.write_text("hepcache: {cache: {codec: raw, capacity: 10 GB}, segment: {entries: 7}}")
    own.write_text("hepcache: {cache: {codec: lz4}}")
    variable = {"DASK_HEPCACHE__CACHE__CAPACITY": "20 GB"}
    with dask.config.set({}):
        dask.config.refresh(paths=dask.config.paths, env=variable)
        try:
            assert source_of("segment.entries", variable) == (7, str(site))
            assert source_of("cache.codec", variable) == ("lz4", str(own))
            expected = ("20 GB", "$DASK_HEPCACHE__CACHE__CAPACITY")
            assert source_of("cache.capacity", variable) == expected
        finally:
            dask.config.refresh()


def test_what_the_program_sets_is_told_from_what_a_file_says(files: Path) -> None:
    (files / "etc/hepcache.yaml").write_text("hepcache: {cache: {codec: raw}}")
    with dask.config.set({"hepcache.cache.codec": "lz4"}):
        assert source_of("cache.codec") == ("lz4", "this process")


def test_what_workers_inherit() -> None:
    text = dask.config.serialize({"hepcache": {"segment": {"entries": 5}}})
    env = {"DASK_INTERNAL_INHERIT_CONFIG": text}
    with dask.config.set({"hepcache.segment.entries": 5}):
        assert source_of("segment.entries", env)[1].startswith("inherited")


def test_a_mistyped_key_is_found(files: Path) -> None:
    (files / "etc/x.yaml").write_text("hepcache: {cache: {capcity: 1 GB}}")
    (found,) = configured({}).unknown
    assert (found.key, found.value, found.source, found.near) == (
        "hepcache.cache.capcity", "1 GB", str(files / "etc/x.yaml"), "cache.capacity"
    )  # fmt: skip


def test_a_refused_value_is_named() -> None:
    with dask.config.set({"hepcache.cache.codec": "zip"}):
        assert "hepcache.cache.codec" in configured({}).problem
    assert configured({}).problem == ""


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "80%", "a: b", "", "{user}/x", "null"])
def test_values_are_written_so_that_they_read_the_same(value: object) -> None:
    assert yaml.safe_load(f"key: {as_yaml(value)}  # why")["key"] == value
