"""Attributes hashed in bulk: equal hashes mean equal attributes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5.format.sources import RECORD
from hepcache.hdf5.inputs import match_files, survey
from hepcache.hdf5.model import OWN_ATTRIBUTES, FileTables

PAIR = np.dtype([("low", "f4"), ("name", h5py.string_dtype())])
VALUES: dict[str, tuple[Any, Any]] = {
    "a number": (1.5, 2.5),
    "another type": (np.int32(1), np.int64(1)),
    "another shape": (np.arange(4), np.arange(4).reshape(2, 2)),
    "another sign of zero": (0.0, -0.0),
    "fixed text": (np.bytes_(b"cm"), np.bytes_(b"mm")),
    "text": ("cm", "mm"),
    "empty text": ("", "m"),
    "texts": (["cm", "", "a longer one"], ["cm", "", "a longer two"]),
    "nothing": (h5py.Empty("f4"), h5py.Empty("f8")),
    "a pair": (np.array((1, "x"), PAIR), np.array((1, "y"), PAIR)),
    "lists": (np.array([(1, 2), (3, 4)], "(2,)i4"), np.array([(1, 2), (3, 5)], "(2,)i4")),
}


def write(path: Path, value: Any, *, name: str = "unit", words: bool = False) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["made by"] = "a job"
        for group in ("spill", "rec"):
            for column in ("run", "evt"):
                dataset = file.create_dataset(f"{group}/{column}", data=np.arange(3))
                dataset.attrs["description"] = f"{column} of {group}"
                if words and column == "run":
                    texts = [f"{path.name} {n}" for n in range(3)]
                    file[f"{group}/word"] = np.array(texts, h5py.string_dtype())
        file["rec/evt"].attrs[name] = value
    return path


def compared(*paths: Path) -> list[FileTables]:
    tables = [survey(str(path)) for path in paths]
    match_files(tables)
    return tables


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("words", [False, True], ids=["numbers", "with words"])
def test_any_attribute_is_compared(values: tuple[Any, Any], words: bool, tmp_path: Path) -> None:
    first, same, other = (
        write(tmp_path / name, value, words=words)
        for name, value in zip("abc", (values[0], *values), strict=True)
    )
    tables = compared(first, same)
    assert tables[0].direct
    assert tables[0].attributes == tables[1].attributes
    with pytest.raises(TableMismatchError) as caught:
        compared(first, same, other)
    assert list(caught.value.problems) == [f"{other}: /rec/evt"]


def test_another_name_and_another_object(tmp_path: Path) -> None:
    first = write(tmp_path / "a", 1)
    renamed = write(tmp_path / "b", 1, name="units")
    moved = write(tmp_path / "c", 1)
    with h5py.File(moved, "r+") as file:
        del file["rec/evt"].attrs["unit"]
        file["rec/run"].attrs["unit"] = 1
    for other in (renamed, moved):
        with pytest.raises(TableMismatchError, match="attributes not those of"):
            compared(first, other)


def test_the_same_in_another_order_or_format(tmp_path: Path) -> None:
    first = write(tmp_path / "a", 1)
    turned = write(tmp_path / "b", 1)
    with h5py.File(turned, "r+") as file:
        description = file["rec/evt"].attrs["description"]
        del file["rec/evt"].attrs["description"]
        file["rec/evt"].attrs["description"] = description
    new = tmp_path / "c"
    with h5py.File(first) as source, h5py.File(new, "w", libver="latest") as file:
        for group in source:
            source.copy(group, file)
        file.attrs["made by"] = "a job"
    tables = compared(first, turned, new)
    assert len({table.attributes for table in tables}) == 3


@pytest.mark.parametrize("version", ["earliest", "v108", "v110", "latest"])
def test_versions_of_the_format(version: str, tmp_path: Path) -> None:
    first = write(tmp_path / "a", "cm")
    with h5py.File(first) as source, h5py.File(tmp_path / "b", "w", libver=version) as file:
        file.attrs["made by"] = "a job"
        for group in source:
            source.copy(group, file)
    compared(first, tmp_path / "b")


def test_what_tells_of_the_file_is_not_compared(tmp_path: Path) -> None:
    assert RECORD.encode() in OWN_ATTRIBUTES
    first, second = (write(tmp_path / name, 1) for name in "ab")
    with h5py.File(second, "r+") as file:
        file.attrs[RECORD] = np.bytes_(b"{}")
        file.attrs["made at"] = np.bytes_(b"{}")
        del file.attrs["made at"]
    tables = compared(first, second)
    assert tables[0].attributes == tables[1].attributes


def test_an_attribute_that_is_a_reference_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", 1)
    with h5py.File(path, "r+") as file:
        file["rec"].attrs["first"] = file["spill"].ref
    with pytest.raises(TableFileError, match="refers to an object"):
        survey(str(path))


def _without(_column: Any, _number: int) -> None:
    pass


def _numbers(column: Any, number: int) -> None:
    column.attrs["scale"] = 1.5 * number
    column.attrs["version"] = number


def _texts(column: Any, number: int) -> None:
    column.attrs["unit"] = f"cm{number}"
    column.attrs["description"] = f"column {number}"


def _wide(path: Path, describe: Callable[[Any, int], None]) -> float:
    """Return the processor's time of a survey of 2000 columns, the best of several."""
    with h5py.File(path, "w") as file:
        for number in range(2000):
            name = f"rec{number // 20}/column{number % 20}"
            describe(file.create_dataset(name, (0, 1), "f4", maxshape=(None, 1)), number)
    times = []
    for _ in range(7):
        begin = time.thread_time()
        assert survey(str(path)).direct
        times.append(time.thread_time() - begin)
    return min(times)


@pytest.mark.parametrize("describe", [_numbers, _texts])
def test_attributes_do_not_slow_the_survey(
    describe: Callable[[Any, int], None], tmp_path: Path
) -> None:
    # HDF5's library took a hundred times as long.
    assert _wide(tmp_path / "b", describe) < 4 * _wide(tmp_path / "a", _without)
