"""Damaged chunks are named, and never taken."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from hepcache.errors import TableFileError
from hepcache.hdf5 import concatenate


def test_a_damaged_chunk(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    with h5py.File(inputs[1]) as file:
        info = file["rec.vtx/id"].id.get_chunk_info(2)
    data = bytearray(inputs[1].read_bytes())
    for at in range(info.byte_offset + 8, info.byte_offset + info.size):
        data[at] ^= 0x55
    inputs[1].write_bytes(data)
    with pytest.raises(TableFileError, match=r"rec\.vtx/id") as raised:
        concatenate(inputs, out, jobs=1)
    assert raised.value.path == str(inputs[1])
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_a_wrong_checksum(inputs: list[Path], tmp_path: Path) -> None:
    for name in ("rec.vtx/id", "rec.vtx/run"):  # stored large, and small
        whole = inputs[1].read_bytes()
        with h5py.File(inputs[1]) as file:
            info = file[name].id.get_chunk_info(1)
        data = bytearray(whole)
        data[info.byte_offset + info.size - 1] ^= 1
        inputs[1].write_bytes(data)
        with pytest.raises(TableFileError, match=name):
            concatenate(inputs, tmp_path / "out.h5", jobs=1)
        inputs[1].write_bytes(whole)
