"""A file of repeated headers is, for HDF5's library, what the library itself makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5f, h5p, h5s, h5t
from hypothesis import given, settings
from hypothesis import strategies as st

from hepcache.hdf5.format.empty_file import HeaderTemplates, empty_file
from hepcache.hdf5.model import Column, Group, Schema, Storage

KINDS = {
    "f4": (h5t.IEEE_F32LE, (0, 1), (h5s.UNLIMITED, 1), (128, 1)),
    "i8": (h5t.STD_I64LE, (77, 1), (h5s.UNLIMITED, 1), (32, 1)),
    "wide": (h5t.STD_U8LE, (5, 300), (h5s.UNLIMITED, 300), (2, 300)),
    "scalar": (h5t.IEEE_F64LE, None, None, None),
    "plain": (h5t.IEEE_F64BE, (9,), None, None),
}


def _make(kind: str) -> Any:
    number, shape, most, chunk = KINDS[kind]

    def make(where: Any, name: bytes) -> Any:
        space = h5s.create(h5s.SCALAR) if shape is None else h5s.create_simple(shape, most)
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
        if chunk is not None:
            creation.set_chunk(chunk)
            creation.set_deflate(6)
            creation.set_fill_value(np.array(3, "f8"))
        return h5d.create(where, name, number, space, creation)

    return make


def _written(path: Path, tables: dict[str, dict[str, str]]) -> Path:
    groups = [Group(b""), *(Group(name.encode()) for name in tables)]
    numbers = {group.path: n for n, group in enumerate(groups)}
    columns, templates = [], HeaderTemplates()
    for name, members in tables.items():
        for member, kind in members.items():
            own = f"{name}/{member}".encode()
            columns.append(
                Column(own, numbers[name.encode()], b"", 0, 0, (), False, Storage("chunked"))
            )
            templates.add(kind, _make(kind))
    made = templates.headers()
    assert made is not None
    path.write_bytes(empty_file(Schema(tuple(groups), tuple(columns)), made))
    return path


def _by_library(path: Path, tables: dict[str, dict[str, str]]) -> Path:
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        for name, members in tables.items():
            group = file.create_group(name)
            for member, kind in members.items():
                _make(kind)(group.id, member.encode())
    return path


def _described(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:

        def visit(name: str, member: Any) -> None:
            if isinstance(member, h5py.Group):
                found[name] = list(member)
                return
            created = member.id.get_create_plist()
            found[name] = (
                member.dtype,
                member.shape,
                member.maxshape,
                member.chunks,
                member.compression,
                member.compression_opts,
                member.fillvalue,
                created.get_layout(),
                member[()].tobytes(),
            )

        file.visititems(visit)
        found[""] = list(file)
    return found


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/."), min_size=1, max_size=20)
trees = st.dictionaries(
    names, st.dictionaries(names, st.sampled_from(sorted(KINDS)), max_size=40), max_size=12
)


@settings(max_examples=40, deadline=None)
@given(tables=trees)
def test_any_names_and_kinds(tmp_path_factory: pytest.TempPathFactory, tables: Any) -> None:
    place = tmp_path_factory.mktemp("skeleton")
    ours = _described(_written(place / "ours.h5", tables))
    assert ours == _described(_by_library(place / "theirs.h5", tables))


@pytest.mark.parametrize(("groups", "members"), [(0, 0), (1, 1), (9, 8), (300, 3), (2, 9000)])
def test_trees_of_several_levels(tmp_path: Path, groups: int, members: int) -> None:
    kinds = sorted(KINDS)
    tables = {
        f"g{g}": {f"value{n}": kinds[n % len(kinds)] for n in range(members)}
        for g in range(groups)
    }
    path = _written(tmp_path / "ours.h5", tables)
    assert path.stat().st_size == h5py.File(path).id.get_filesize()
    with h5py.File(path, "r+") as file:  # HDF5 goes on with it as with its own
        assert list(file) == sorted(tables)
        for name, own in tables.items():
            assert list(file[name]) == sorted(own)
            for n in range(0, members, max(1, members // 50)):
                assert file[name][f"value{n}"].dtype == KINDS[kinds[n % len(kinds)]][0].dtype
        if groups and members:
            group = file["g0"]
            for n in range(40):
                group[f"new{n}"] = np.arange(n)
                file[f"more{n}/x"] = n
            group["value0"].attrs["unit"] = "cm" * 50
            del group[f"value{members - 1}"]
    with h5py.File(path) as file:
        if groups and members:
            assert len(file["g0"]) == members + 39
            assert (file["g0/new39"][()] == np.arange(39)).all()
            assert len(file) == groups + 40


def test_groups_in_groups(tmp_path: Path) -> None:
    tables = {"a": {"x": "f4"}, "a/b": {}, "a/b/c": {"y": "i8", "a": "wide"}, "z": {"b": "scalar"}}
    ours = _described(_written(tmp_path / "ours.h5", tables))
    assert ours == _described(_by_library(tmp_path / "theirs.h5", tables))
    assert ours["a"] == ["b", "x"]


def test_what_refers_to_an_address_is_not_repeated() -> None:
    def written(where: Any, name: bytes) -> Any:
        dataset = _make("i8")(where, name)
        dataset.write(h5s.ALL, h5s.ALL, np.ones((77, 1), np.int64))
        h5f.flush(dataset)
        return dataset

    templates = HeaderTemplates()
    templates.add(1, _make("f4"))
    templates.add(2, written)
    assert templates.headers() is None
