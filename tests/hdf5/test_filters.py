"""Chunks in other compressions than HDF5's own are read wherever they are met."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from hepcache.errors import MissingFilterError
from hepcache.hdf5 import TableOptions, concatenate, describe

SCRIPT = Path(__file__).with_name("reading_plugins.py")


def failures(path: Path, inputs: list[Path], *how: str) -> list[str]:
    """Return how ways of reading failed, in processes that have read nothing before."""
    done = subprocess.run(
        [sys.executable, SCRIPT, path, *inputs[:2], *how],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if "Error: " in line]


@pytest.mark.parametrize(("compression", "how"), [("zstd", ()), ("blosc", ("tables", "check"))])
def test_what_concat_wrote_is_read(
    compression: Any, how: tuple[str, ...], inputs: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.h5"
    options = TableOptions(key="evt", compression=compression, chunk_rows=16)
    concatenate(inputs[:1], out, options, jobs=1)
    assert failures(out, inputs, *how) == []


def test_a_missing_package_is_named(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    concatenate(inputs[:1], out, TableOptions(key="evt", compression="zstd"), jobs=1)
    how = ("check", "rechunk", "store")
    failed = failures(out, inputs, *how, "without")
    assert len(failed) == len(how), failed
    for line in failed:
        assert "zstd" in line
        assert "pip install hdf5plugin" in line
        assert "damaged" not in line


def write_unknown(path: Path) -> Path:
    """Write a chunk in a compression that nobody has."""
    with h5py.File(path, "w") as file:
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_chunk((10,))
        creation.set_filter(32099, h5z.FLAG_OPTIONAL, (1,))
        made = h5d.create(file.id, b"x", h5t.STD_I64LE, h5s.create_simple((10,)), creation)
        made.write_direct_chunk((0,), np.arange(10).tobytes(), 0)
    return path


def test_an_unknown_filter_is_named(tmp_path: Path) -> None:
    path = write_unknown(tmp_path / "in.h5")
    assert describe(path).groups[0].rows == 10
    with pytest.raises(MissingFilterError, match=r"/x .*32099") as raised:
        concatenate([path], tmp_path / "out.h5", jobs=1)
    assert raised.value.number == 32099
    assert "damaged" not in str(raised.value)
    assert not (tmp_path / "out.h5").exists()
