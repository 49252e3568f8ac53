"""Parquet files, which pyarrow decodes: what they are, and what they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import fsspec
import numpy as np
import pyarrow as pa
import pytest
from coffea.nanoevents import BaseSchema
from pyarrow import parquet as pq
from tests.io.http_origin import HttpOrigin, http_origin

import hepcache
from hepcache.errors import BadFileError, OriginError, UnknownColumnError
from hepcache.formats import parquet
from hepcache.formats.registry import column_names, forget_sources, open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.telemetry import ReadLog

ROWS = 40


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = np.arange(ROWS)
    counts = rng.integers(0, 4, ROWS)
    lists = ak.unflatten(rng.normal(size=counts.sum()).astype(np.float32), counts)
    texts = ak.Array(["a", "bb"] * (ROWS // 2))
    return {
        "floats": x * 0.5,
        "flags": x % 3 == 0,
        "lists": lists,
        "flag lists": lists > 0,
        "no floats": ak.mask(x * 1.0, x % 3 > 0),
        "no integers": ak.mask(x, x % 3 > 0),
        "always": ak.mask(x, x >= 0),
        "no lists": ak.mask(lists, x % 3 > 0),
        "no items": ak.mask(lists, lists > 0),
        "nested": ak.Array([[[1.0, 2], [3]], []] * (ROWS // 2)),
        "record": ak.zip({"x": x, "y": x * 2.0}),
        "records": ak.zip({"pt": lists, "eta": lists * 2}, with_name="Jet"),
        "texts": texts,
        "text lists": ak.Array([["a", "bb"], []] * (ROWS // 2)),
        "categories": ak.str.to_categorical(texts),
        "regular": ak.to_regular(ak.Array(np.ones((ROWS, 3)))),
        "times": ak.Array(x.astype("datetime64[s]")),
    }


def write(path: Path, groups: int = 16, *, extensionarray: bool = True) -> Path:
    known = columns()
    contents = [ak.Array(values).layout for values in known.values()]
    array = ak.Array(ak.contents.RecordArray(contents, list(known)))
    ak.to_parquet(array, path, row_group_size=groups, extensionarray=extensionarray)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "skim.parquet")


def source_of(path: Path, boundaries: tuple[int, ...] | None = None) -> parquet.ParquetSource:
    record = probe(str(path))
    return parquet.ParquetSource(
        TreeRef(
            path=record.path,
            tree=record.tree,
            uuid=record.uuid,
            tag=record.tag,
            validator=record.validator,
            boundaries=boundaries or record.clusters,
        )
    )


@pytest.mark.parametrize("extensionarray", [True, False])
@pytest.mark.parametrize("groups", [7, 1000])
def test_arrays_are_awkwards(tmp_path: Path, groups: int, extensionarray: bool) -> None:
    path = write(tmp_path / "skim.parquet", groups, extensionarray=extensionarray)
    expected = ak.from_parquet(path)
    for start, stop in ((0, ROWS), (0, ROWS), (5, 23), (9, 9)):
        found = hepcache.arrays(str(path), start=start, stop=stop)
        assert set(found.fields) == set(expected.fields)
        for name in expected.fields:
            part = expected[name][start:stop]
            assert str(found[name].type) == str(part.type), name
            assert ak.array_equal(found[name], part, equal_nan=True, same_content_types=False), (
                name
            )


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20])
def test_a_row_group_is_read_in_parts(
    path: Path, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_KEPT_BYTES", kept_bytes)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 3)
    source, log = source_of(path), ReadLog()
    parts = [source.read(["floats", "lists"], *part, log) for part in ((0, 5), (5, 20), (20, 40))]
    values = [part["floats"].values for part in parts]  # type: ignore[union-attr]
    assert np.concatenate(values).tolist() == columns()["floats"].tolist()
    content = [part["lists"].content for part in parts]  # type: ignore[union-attr]
    assert np.array_equal(np.concatenate(content), ak.to_numpy(ak.flatten(columns()["lists"])))
    assert log.origin_bytes > 0
    source.close()


def test_row_groups_are_its_clusters(path: Path) -> None:
    record = probe(str(path))
    assert (record.entries, record.clusters) == (ROWS, (0, 16, 32, 40))
    assert column_names(record) == list(columns())


def test_only_the_wanted_columns_are_read(path: Path) -> None:
    source, log = source_of(path), ReadLog()
    source.account(ReadLog())
    ranges = source.ranges(["floats"], 0, 16)
    place = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert sum(length for _, length in ranges) == place.total_compressed_size
    source.expect(ranges)
    source.read(["floats"], 0, 16, log)
    assert log.origin_bytes == log.used_bytes == place.total_compressed_size
    source.close()


def test_unknown_columns_are_named(path: Path) -> None:
    source = source_of(path)
    with pytest.raises(UnknownColumnError, match=r"list.*lists"):
        source.read(["list"], 0, 5, ReadLog())
    source.close()


def replaced(path: Path) -> None:
    other = path.with_name("other")
    ak.to_parquet(ak.Array({"floats": np.zeros(ROWS)}), other)
    other.replace(path)


def written_in_place(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\0\0\0\0")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("change", [replaced, written_in_place, cut_off, Path.unlink])
def test_what_changed_since_it_was_examined_is_not_read(
    path: Path, change: Callable[[Path], None]
) -> None:
    source = source_of(path)
    change(path)
    with pytest.raises((OriginError, BadFileError), match=str(path)):
        source.read(["floats"], 0, 16, ReadLog())
    source.close()


@pytest.mark.parametrize("change", [replaced, written_in_place])
def test_another_content_is_never_the_same(path: Path, change: Callable[[Path], None]) -> None:
    before = probe(str(path))
    change(path)
    after = probe(str(path))
    assert (before.uuid, before.tag) != (after.uuid, after.tag)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"PAR1", "truncated"),
        (b"root and so on", "not a parquet file: it begins with b'root'"),
        (b"PAR1 and so on, PAR1", "damaged or unreadable"),
        (b"PAR1" + bytes(20) + b"\xff\xff\xff\x7fPAR1", "damaged or unreadable"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content)
    with pytest.raises(BadFileError, match=problem) as raised:
        probe(str(path))
    assert list(raised.value.problems) == [str(path)]


def test_every_damaged_byte_is_an_error_or_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "checked.parquet"
    x = np.random.default_rng(0).integers(0, 1 << 40, ROWS)
    pq.write_table(pa.table({"x": x}), path, write_page_checksum=True, use_dictionary=False)
    good = path.read_bytes()
    for place in range(4, len(good), len(good) // 40):
        data = bytearray(good)
        data[place] ^= 0x55
        path.write_bytes(bytes(data))
        try:
            found = hepcache.arrays(str(path))
        except Exception:
            continue
        assert "x" not in found.fields or ak.to_list(found.x) == x.tolist()


def test_a_damaged_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    table = pa.table({name: np.random.default_rng(2).normal(size=1000) for name in ("x", "y")})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    for place in range(chunk.data_page_offset + 30, chunk.data_page_offset + 4000):
        data[place] = 0x55
    path.write_bytes(bytes(data))
    with pytest.raises(Exception, match=r".") as raised:
        hepcache.arrays(str(path))
    assert any("column 'y'" in note and str(path) in note for note in raised.value.__notes__)
    assert len(hepcache.arrays(str(path), "x")) == 1000


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "twins.parquet"
    x = pa.array([1, 2])
    pq.write_table(pa.Table.from_arrays([x, x], names=["x", "x"]), path)
    with pytest.raises(BadFileError, match="two of its columns are named 'x'"):
        probe(str(path))


def test_events_that_coffea_reads_in_its_own_way_are_left_to_it(tmp_path: Path) -> None:
    form = '{"class": "NumpyArray", "primitive": "uint32", "parameters": {}}'
    field = pa.field("x", pa.int32(), metadata={"form": form})
    path = tmp_path / "noted.parquet"
    x = pa.array([-1, 2], pa.int32())
    pq.write_table(pa.Table.from_arrays([x], schema=pa.schema([field])), path)
    with pytest.warns(UserWarning, match="read by coffea, past the cache: .* column x"):
        events = hepcache.events(str(path), schema=BaseSchema)
    assert events.x.to_list() == [2**32 - 1, 2]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    forget_sources()


def test_sources_stay_open(path: Path) -> None:
    record = probe(str(path))
    ref = TreeRef(record.path, "", record.uuid, record.tag, record.validator, record.clusters)
    assert open_source(ref) is open_source(ref)


@pytest.fixture
def server() -> Iterator[HttpOrigin]:
    with http_origin() as server:
        yield server
        fsspec.filesystem("http").clear_instance_cache()


def test_a_file_behind_a_url_is_read_and_its_replacement_noticed(
    path: Path, server: HttpOrigin
) -> None:
    server.files["skim.parquet"] = path.read_bytes()
    url = server.url("skim.parquet")
    assert hepcache.arrays(url, "floats").floats.to_list() == columns()["floats"].tolist()
    asked = len(server.asked)
    assert hepcache.arrays(url, "floats", 3, 5).floats.to_list() == [1.5, 2.0]
    assert len(server.asked) == asked
    ak.to_parquet(ak.Array({"floats": np.arange(ROWS) * 2.0}), path)
    server.files["skim.parquet"], server.etags["skim.parquet"] = path.read_bytes(), '"2"'
    assert hepcache.arrays(url, "floats", 3, 5).floats.to_list() == [6.0, 8.0]


def test_a_url_whose_server_fails_is_asked_again(path: Path, server: HttpOrigin) -> None:
    server.files["skim.parquet"] = path.read_bytes()
    url = server.url("skim.parquet")
    assert probe(url).entries == ROWS
    server.faults += [503, "drop"]
    assert hepcache.arrays(url, "lists").lists.to_list() == columns()["lists"].to_list()
