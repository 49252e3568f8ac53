"""Columns of a concatenated HDF5 file: through catalogue, source, reader and cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pytest

from hepcache.cache import ColumnCache
from hepcache.errors import BadFileError, OriginError, UnknownColumnError
from hepcache.formats.hdf5 import HDF5Source
from hepcache.formats.reader import Reader
from hepcache.formats.registry import column_names, forget_sources, open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.hdf5 import TableOptions, add_key, concatenate
from hepcache.telemetry import ReadLog

EVENTS = 90
SEGMENTS = (0, 25, 60, EVENTS)


@pytest.fixture(autouse=True)
def _closed() -> None:
    forget_sources()


def write_input(path: Path, number: int, events: int = EVENTS // 3) -> Path:
    """Write a table of events, one of any number of rows per event, and an empty one."""
    rng = np.random.default_rng(number)
    evt = np.arange(1, events + 1, dtype="u4") * 3
    at = np.repeat(np.arange(events), rng.poisson(1.7, events))
    with h5py.File(path, "w") as file:
        for group, rows in (("spill", np.arange(events)), ("rec/vtx", at), ("rec/none", at[:0])):
            size = len(rows)
            columns: dict[str, Any] = {
                "run": np.full((size, 1), 7, "u4"),
                "subrun": np.full((size, 1), number, "u4"),
                "evt": evt[rows][:, None],
                "x": rng.normal(size=(size, 1)).astype(">f4"),
                "map": rng.integers(0, 9, (size, 2, 3)).astype("u1"),
                "good": rng.integers(0, 2, size).astype("?"),
                "word": np.array([b"word"] * size, "S4"),
                "pair": np.zeros(size, [("a", "i4"), ("b", "f4")]),
            }
            for name, values in columns.items():
                tail = values.shape[1:]
                file.create_dataset(
                    f"{group}/{name}", data=values, maxshape=(None, *tail), chunks=(16, *tail),
                    compression=4,
                )  # fmt: skip
            file.create_dataset(
                f"{group}/text", (size,), h5py.string_dtype(), maxshape=(None,), chunks=(16,)
            )
    return path


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    out = tmp_path / "all.h5"
    inputs = [write_input(tmp_path / f"in{n}.h5", n) for n in range(3)]
    concatenate(inputs, out, TableOptions(key="evt", chunk_rows=32), jobs=1)
    return out


def ref_of(path: Path, boundaries: tuple[int, ...] = SEGMENTS, tree: str | None = None) -> TreeRef:
    found = probe(str(path), tree)
    return TreeRef(found.path, found.tree, found.uuid, found.tag, found.validator, boundaries)


def expected(path: Path) -> dict[str, ak.Array]:
    """Return what columns hold, put together row by row through h5py."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        for group, label in (("spill", "spill"), ("rec/vtx", "rec.vtx"), ("rec/none", "rec.none")):
            keys = file[f"{group}/evt.seq"][()].ravel()
            counts = np.array([(keys == event).sum() for event in range(EVENTS)])
            for name in ("run", "subrun", "evt", "x", "map", "good"):
                rows = file[f"{group}/{name}"][()]
                rows = rows.reshape(len(rows), *([] if name != "map" else (2, 3)))
                values = ak.from_numpy(
                    rows.astype(rows.dtype.newbyteorder("=")), regulararray=True
                )
                found[f"{label}_{name}"] = (
                    values if group == "spill" else ak.unflatten(values, counts)
                )
            if group != "spill":
                found[f"n{label}"] = ak.Array(counts)
    return found


def test_the_catalogue_knows_the_events(joined: Path, tmp_path: Path) -> None:
    found = probe(str(joined))
    assert (found.tree, found.entries, found.clusters) == ("spill", EVENTS, (0, EVENTS))
    assert probe(str(joined), "spill") == found
    assert probe(str(joined), "/spill/evt") == replace(found, tree="spill/evt")
    assert set(column_names(found)) == set(expected(joined))
    # What is written anew is new, though neither name nor time is.
    before = joined.stat()
    with h5py.File(joined, "r+") as file:
        file["rec/vtx"].move("x", "y")
    os.utime(joined, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = probe(str(joined))
    assert changed.uuid == found.uuid
    assert changed.fingerprint != found.fingerprint
    assert changed.tag != found.tag


def test_columns_are_rows_by_event(joined: Path) -> None:
    source = open_source(ref_of(joined))
    assert isinstance(source, HDF5Source)
    reader = Reader(source.ref, None, open_source, ReadLog())
    for name, values in expected(joined).items():
        assert source.has(name)
        for start, stop in ((0, EVENTS), (0, 1), (24, 26), (59, 90), (13, 13)):
            array = ak.Array(reader.array(name, start, stop))
            assert str(array.type.content) == str(values.type.content), name
            assert array.tolist() == values[start:stop].tolist(), name
            assert ak.to_buffers(ak.to_packed(array))[2].keys()
        x = source.tree[name].awkward_form()
        assert str(x.type) == str(values.type.content), name
    assert source.counter("rec.vtx_x") == "nrec.vtx"
    assert source.counter("rec.vtx_map") is None
    assert source.counter("spill_x") is None
    assert not source.has("rec.vtx_text")
    with pytest.raises(UnknownColumnError, match=r"rec\.vtx_x"):
        source.read(["rec.vtx_xx"], 0, 5, ReadLog())


def test_what_is_cached_is_not_read_again(joined: Path, tmp_path: Path) -> None:
    ref = ref_of(joined)
    names = ["rec.vtx_x", "rec.vtx_map", "spill_x"]
    cache = ColumnCache(tmp_path / "columns", capacity_bytes=1 << 30)
    logs = []
    for opened in (open_source, _never):
        log = ReadLog()
        reader = Reader(ref, cache, opened, log)
        reader.prefetch(names, 10, 70)
        arrays = [ak.Array(reader.array(name, 10, 70)).tolist() for name in names]
        assert arrays == [expected(joined)[name][10:70].tolist() for name in names]
        reader.count(10, 70)
        logs.append(log)
        cache.flush()
    cache.close()
    assert logs[0].causes.keys() == {"miss"}
    assert logs[1].causes.keys() == {"hit"}
    assert 0 < logs[0].used_bytes <= logs[0].origin_bytes
    assert logs[1].origin_bytes == 0


def _never(_ref: TreeRef) -> Any:
    raise AssertionError("the file was opened")


def test_a_file_that_changes_is_noticed(joined: Path) -> None:
    ref = ref_of(joined)
    source = open_source(ref)
    source.read(["rec.vtx_x"], 0, 5, ReadLog())
    with h5py.File(joined, "r+") as file:
        file["rec/vtx/x"][0] = 1e9
    os.utime(joined)
    with pytest.raises(OriginError, match="was written"):
        source.read(["spill_x"], 0, 5, ReadLog())
    forget_sources()
    with pytest.raises(OriginError, match="was written"):
        open_source(ref)


def test_keys_that_fall_are_no_events(joined: Path) -> None:
    with h5py.File(joined, "r+") as file:
        file["rec/vtx/evt.seq"][5] = 60
    source = open_source(ref_of(joined))
    with pytest.raises(OriginError, match="hdf5 check"):
        source.read(["rec.vtx_x"], 0, 25, ReadLog())


def _no_keys(file: Any) -> None:
    del file["spill/evt.seq"]


def _two_keys(file: Any) -> None:
    file["spill/run.seq"] = file["spill/evt.seq"][()]


def _wrong_keys(file: Any) -> None:
    file["spill/evt.seq"][4:6] = file["spill/evt.seq"][4:6][::-1]


def _one_name(file: Any) -> None:
    file.copy("rec/vtx", "rec.vtx")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_keys, "add-key"),
        (_two_keys, "name one: spill/evt, spill/run"),
        (_wrong_keys, "does not number its rows"),
        (_one_name, "would both be column"),
    ],
)
def test_files_without_events(joined: Path, change: Callable[[Any], None], words: str) -> None:
    with h5py.File(joined, "r+") as file:
        change(file)
    with pytest.raises(BadFileError, match=words):
        probe(str(joined))
    if change is _two_keys:
        assert probe(str(joined), "spill/evt").entries == EVENTS


def test_what_is_no_such_file(tmp_path: Path, joined: Path) -> None:
    (tmp_path / "text.h5").write_text("run evt\n" * 99)
    for path, tree, words in (
        (tmp_path / "text.h5", None, "not an HDF5 file"),
        (tmp_path / "missing.h5", None, "no such file"),
        (joined, "rec/nothing", "no partition keys"),
        ("root://server//all.h5", None, "mount it"),
    ):
        with pytest.raises(BadFileError, match=words):
            probe(str(path), tree)


def test_no_event_at_all(tmp_path: Path) -> None:
    path = write_input(tmp_path / "empty.h5", 1, 0)
    add_key(path, jobs=1)
    ref = ref_of(path, (0,))
    column = open_source(ref).read(["rec.vtx_x"], 0, 0, ReadLog())["rec.vtx_x"]
    assert len(column) == 0
