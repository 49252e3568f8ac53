"""The bulk parser of old files against HDF5's library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import TableFileError
from hepcache.hdf5.inputs import read_schema, survey
from hepcache.hdf5.model import FileTables
from hepcache.samples.tables import TableShape, write_tables


def both(path: Path) -> tuple[FileTables, FileTables]:
    return survey(str(path)), survey(str(path), direct=False)


def agree(path: Path) -> FileTables:
    ours, theirs = both(path)
    assert ours.direct
    assert not theirs.direct
    assert read_schema(ours) == read_schema(theirs)
    assert ours.filled.tolist() == theirs.filled.tolist()
    assert ours.lengths.tolist() == theirs.lengths.tolist()
    assert bool(ours.attributes) == bool(theirs.attributes)
    assert ours.values == theirs.values
    return ours


def test_real_files(shared_data: Path) -> None:
    found = [agree(path) for path in sorted((shared_data / "hdf5").glob("*.h5"))]
    assert len(found) == 2
    assert found[0].digest == found[1].digest


def test_samples(tmp_path: Path) -> None:
    shape = TableShape(120, 20, 1400, 300, 20, 0.4, 8.0, (16,))
    paths = write_tables(tmp_path, shape=shape, files=2, jobs=1)
    found = [agree(path) for path in paths]
    assert found[0].digest == found[1].digest


def _attributes(file: Any) -> None:
    file.attrs["made by"] = "a job"
    file["g"].attrs["list"] = np.arange(4)
    for n in range(30):  # more than an object header's first block holds
        file["g/x"].attrs[f"attribute {n}"] = f"value {n}"


def _nested(file: Any) -> None:
    for name in ("a", "a/b", "a/b/c", "z"):
        file.create_group(name).create_dataset("x", data=np.arange(5.0), chunks=(2,))
    file["top"] = np.arange(3)


def _many(file: Any) -> None:
    # B-trees of several levels, of several heights
    for n in range(700):
        file.create_group(f"group {n:04d} with a name that is not short at all, really not")
    for n in range(400):
        file["g"].create_dataset(f"{n}", (0,), "f4", maxshape=(None,), chunks=(8,))


def _types(file: Any) -> None:
    group = file["g"]
    kinds = ["<f8", ">f4", "i1", "u8", "S5", "?", [("a", "<i4"), ("b", ">f8", (2,))], "<c8"]
    for n, kind in enumerate(kinds):
        group.create_dataset(f"type{n}", (7,), np.dtype(kind), chunks=(3,), maxshape=(None,))
    group.create_dataset("enum", (3,), h5py.enum_dtype({"a": 1, "b": 2}, "u1"), chunks=(2,))
    group.create_dataset("text", (3,), h5py.string_dtype(), chunks=(2,))
    group.create_dataset("list", (3,), h5py.vlen_dtype("i4"), chunks=(2,))
    group.create_dataset("opaque", (3,), "V3", chunks=(2,))


def _layouts(file: Any) -> None:
    group = file["g"]
    group.create_dataset("filled", (9,), "i4", chunks=(2,), fillvalue=-7)
    group.create_dataset("shuffled", (9,), "i4", chunks=(2,), shuffle=True, compression=4)
    group.create_dataset("checked", (9,), "i4", chunks=(2,), fletcher32=True)
    group.create_dataset("other", (9,), "i4", chunks=(2,), compression="lzf")
    group.create_dataset("offset", (9,), "i4", chunks=(2,), scaleoffset=3)
    group.create_dataset("plain", data=np.arange(9))
    group.create_dataset("unwritten", (9,), "f4")
    group.create_dataset("square", (9, 5, 2), "f4", chunks=(2, 3, 1), maxshape=(None, None, 2))
    group["scalar"] = 4.5
    group["word"] = "text"


@pytest.mark.parametrize("fill", [_attributes, _nested, _many, _types, _layouts])
def test_what_old_files_may_hold(tmp_path: Path, fill: Callable[[Any], None]) -> None:
    path = tmp_path / "one.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("g/x", data=np.arange(10, dtype="f4"), chunks=(4,), maxshape=(None,))
        fill(file)
    agree(path)


def _soft_link(file: Any) -> None:
    file["soft"] = h5py.SoftLink("/g/x")


def _external_link(file: Any) -> None:
    file["external"] = h5py.ExternalLink("other.h5", "/g")


def _second_name(file: Any) -> None:
    file["second"] = file["g/x"]


def _named_type(file: Any) -> None:
    file["named"] = np.dtype("f8")


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (_soft_link, "is a link"),
        (_external_link, "is a link"),
        (_second_name, "second name"),
        (_named_type, "named type"),
    ],
)
def test_what_is_no_table_is_refused(
    tmp_path: Path, fill: Callable[[Any], None], reason: str
) -> None:
    path = tmp_path / "one.h5"
    with h5py.File(path, "w") as file:
        file["g/x"] = np.arange(4)
        fill(file)
    with pytest.raises(TableFileError, match=reason):
        survey(str(path))


@pytest.mark.parametrize("options", [{"libver": "latest"}, {"userblock_size": 512}])
def test_other_formats_are_left_to_the_library(tmp_path: Path, options: dict[str, Any]) -> None:
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    for path, own in ((old, {}), (new, options)):
        with h5py.File(path, "w", **own) as file:
            file.create_dataset("g/x", data=np.arange(10), chunks=(4,), maxshape=(None,))
            file.create_dataset("g/y", data=np.arange(10) / 2, chunks=(4,), maxshape=(None,))
    ours, theirs = survey(str(old)), survey(str(new))
    assert ours.direct
    assert not theirs.direct
    assert ours.lengths.tolist() == theirs.lengths.tolist() == [10, 10]
    one, other = read_schema(ours), read_schema(theirs)
    assert [column.path for column in one.columns] == [column.path for column in other.columns]
    assert [column.storage for column in one.columns] == [c.storage for c in other.columns]


def test_a_damaged_byte_never_passes_for_another_file(tmp_path: Path) -> None:
    """Whatever byte of the metadata is wrong: the parser agrees with HDF5, or leaves it alone."""
    path = tmp_path / "one.h5"
    with h5py.File(path, "w") as file:
        for name in ("a", "b", "c"):
            file.create_dataset(f"g/{name}", data=np.arange(5), chunks=(2,), maxshape=(None,))
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for place in rng.integers(0, len(whole), 300).tolist():
        data = bytearray(whole)
        data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            theirs = survey(str(path), direct=False)
        except TableFileError:
            refused += 1
            theirs = None
        try:
            ours = survey(str(path))
        except TableFileError:
            continue
        if theirs is not None:
            assert ours.lengths.tolist() == theirs.lengths.tolist()
            assert ours.columns == theirs.columns
    assert refused
