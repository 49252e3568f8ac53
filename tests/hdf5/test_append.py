"""An append is the same as a concatenation of all; keys can be made later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5 import TableOptions, add_key, append, check_keys, concatenate
from hepcache.hdf5.append import content_bytes

OPTIONS = TableOptions(key="evt", chunk_rows=32, wide_chunk_rows=16)
Same = Callable[..., None]


def test_append(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    for options in (OPTIONS, TableOptions(), TableOptions(compression="zstd")):
        concatenate(inputs[:1], out, options, jobs=1, overwrite=True)
        append(inputs[1:2], out, options, jobs=1)
        append(inputs[2:], out, options, jobs=1)
        import hdf5plugin  # noqa: F401 - so that h5py can read the result

        same(out, inputs, options.key)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_what_a_killed_append_left_behind_is_overwritten(
    inputs: list[Path], tmp_path: Path, same: Same, libver: str
) -> None:
    out, copy = tmp_path / "out.h5", tmp_path / "copy.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    if libver == "latest":
        with h5py.File(out) as source, h5py.File(copy, "w", libver=libver) as other:
            for name in source:
                source.copy(name, other)
        copy.replace(out)
    size = out.stat().st_size
    assert content_bytes(out) == size
    with out.open("ab") as file:
        file.write(b"rubbish " * 100_000)
    assert content_bytes(out) == size
    append(inputs[2:], out, OPTIONS, jobs=1)
    same(out, inputs, "evt")
    assert out.stat().st_size < size + 400_000


def test_appends_that_are_refused(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    with pytest.raises(TableFileError, match="not there"):
        append(inputs, out, jobs=1)
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    before = out.read_bytes()
    with pytest.raises(TableMismatchError, match="--key evt"):
        append(inputs[2:], out, jobs=1)  # the new rows would have no keys
    with pytest.raises(TableMismatchError, match="more than one file"):
        append(inputs[1:], out, OPTIONS, jobs=1)
    with h5py.File(inputs[2], "r+") as file:
        del file["rec.vtx/x"]
    with pytest.raises(TableMismatchError, match="is missing"):
        append(inputs[2:], out, OPTIONS, jobs=1)
    assert out.read_bytes() == before
    plain = tmp_path / "plain.h5"
    concatenate(inputs[:1], plain, jobs=1)
    with pytest.raises(TableFileError, match="add-key"):
        append(inputs[1:2], plain, OPTIONS, jobs=1)
    concatenate(inputs[:1], plain, TableOptions(contiguous=True), jobs=1, overwrite=True)
    with pytest.raises(TableMismatchError, match="rechunk"):
        append(inputs[1:2], plain, jobs=1)


def test_an_output_with_wrong_keys_takes_no_more(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:2], out, OPTIONS, jobs=1)
    with h5py.File(out, "r+") as file:
        file["rec.vtx/evt.seq"][-1] = 10**6
    with pytest.raises(TableMismatchError, match="does not number"):
        append(inputs[2:], out, OPTIONS, jobs=1)


def test_keys_later(inputs: list[Path], tmp_path: Path, same: Same) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, jobs=1)
    add_key(out, jobs=1)
    same(out, inputs, "evt")
    assert not [check.problem for check in check_keys(out) if check.problem]
    with pytest.raises(TableFileError, match="already"):
        add_key(out, jobs=1)


def test_keys_later_need_runs_and_subruns(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs, out, jobs=1)
    with h5py.File(out, "r+") as file:
        for group in file:
            del file[f"{group}/run"], file[f"{group}/subrun"]
    before = out.read_bytes()
    with pytest.raises(TableMismatchError, match="twice"):
        add_key(out, jobs=1)
    assert out.read_bytes() == before
