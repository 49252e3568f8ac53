"""Columns of real files and of made-up ones of every kind: what uproot reads, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.cache import ColumnCache
from hepcache.formats.reader import Reader
from hepcache.formats.registry import forget_sources, open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.telemetry import ReadLog

REAL = [
    ("nano_dy", "Events"),
    ("nano_dy", "Runs"),
    ("nano_dy_empty", "Events"),
    ("nano_tree", "Events"),
    ("nano_tree", "Runs"),
    ("nano_tt_v15", "Events"),
    ("nano_dy_rntuple", "Events"),
    ("Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0", "Events"),
]
NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


@pytest.fixture(autouse=True)
def _no_open_files() -> Iterator[None]:
    forget_sources()
    yield
    forget_sources()


def bits(layout: Any) -> tuple[Any, int, dict[str, tuple[str, bytes]]]:
    """Return type, length and buffers of an array, as if it were the only one in the world."""
    packed = ak.to_packed(ak.Array(layout))
    _, length, buffers = ak.to_buffers(packed)
    plain = {
        name: (buffer.dtype.str, np.ascontiguousarray(buffer).tobytes())
        for name, buffer in buffers.items()
    }
    return ak.type(packed), length, plain


def check(path: Path, tree_name: str, directory: Path) -> int:
    """Compare all columns, cold, hot and in part; return how many there are."""
    record = probe(str(path), tree_name)
    ref = TreeRef(
        record.path,
        record.tree,
        record.uuid,
        record.tag,
        record.validator,
        record.clusters if record.entries else (0,),
    )
    cache = ColumnCache(directory / "cache", codec="raw")
    with uproot.open(path) as file:
        tree = file[tree_name]
        # Parts of records are read with the records.
        names = [name for name in tree.keys() if "." not in name and not name.startswith("_")]  # noqa: SIM118
        entries = tree.num_entries
        cut = entries // 3, 2 * entries // 3 + 1
        ranges = [(0, entries), (0, entries), cut] if entries else [(0, 0)]
        for start, stop in ranges:
            reader = Reader(ref, cache, open_source, ReadLog())
            reader.prefetch(names, start, stop)
            for name in names:
                mine = bits(reader.array(name, start, stop))
                theirs = tree[name].array(entry_start=start, entry_stop=stop)
                assert mine == bits(theirs), (name, start, stop)
            cache.flush()
    cache.close()
    return len(names)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tree"), REAL, ids=["-".join(pair)[:20] for pair in REAL])
def test_every_column_of_a_real_file(
    shared_data: Path, tmp_path: Path, kind: str, tree: str
) -> None:
    path = shared_data / "nanoaod" / f"{kind}.root"
    if not path.exists():
        pytest.skip(f"{path.name} is not among the shared test data")
    assert check(path, tree, tmp_path) > 5


def every_kind(entries: int, seed: int) -> dict[str, Any]:
    """Return numbers of every size, alone, in lists and in arrays of fixed size, and strings."""
    random = np.random.default_rng(seed)
    counts = random.poisson(1.5, entries)
    found: dict[str, Any] = {"text": ak.Array([f"event {i}" * (i % 3) for i in range(entries)])}
    for name in NUMBERS:
        dtype = np.dtype(name)

        def values(*shape: int, dtype: np.dtype[Any] = dtype) -> np.ndarray:
            # All bits there are, NaN with payloads among them.
            made = random.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
            return (made & 1 if dtype.kind == "b" else made).view(dtype)[..., 0]

        label = dtype.name
        found[f"flat_{label}"] = values(entries)
        found[f"fixed_{label}"] = values(entries, 3)
        found[f"list_{label}"] = ak.unflatten(values(int(counts.sum())), counts)
    return found


@pytest.mark.parametrize("compression", ["ZSTD", "ZLIB", "LZ4", "LZMA", None])
def test_every_kind_of_basket(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "file.root"
    packed = getattr(uproot, compression)(1) if compression else None
    with uproot.recreate(path, compression=packed) as file:
        first = every_kind(40, 1)
        kinds = {
            name: values.type
            if isinstance(values, ak.Array)
            else np.dtype((values.dtype, values.shape[1:]))
            for name, values in first.items()
        }
        file.mktree("Events", kinds)
        file["Events"].extend(first)
        file["Events"].extend(every_kind(70, 2))
    assert check(path, "Events", tmp_path) >= 3 * len(NUMBERS)


@pytest.mark.parametrize("compression", ["ZSTD", "LZMA"])
def test_every_kind_of_page(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "file.root"
    with uproot.recreate(path, compression=getattr(uproot, compression)(1)) as file:
        ntuple = file.mkrntuple("Events", ak.Array(every_kind(40, 1)))
        ntuple.extend(ak.Array(every_kind(70, 2)))
    assert check(path, "Events", tmp_path) >= 3 * len(NUMBERS)
