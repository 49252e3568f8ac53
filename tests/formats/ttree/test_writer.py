from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.formats.ttree.writer import Leaf, RootFile, parse_compression


def test_a_file_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "half.root"

    def write() -> None:
        with RootFile(path, parse_compression("zstd:1")) as file:
            tree = file.tree("t", "t", [Leaf("x", np.dtype("i4"))])
            tree.write(tree.encode({"x": np.arange(10, dtype="i4")}, {}))
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write()
    assert not list(tmp_path.iterdir())


def test_every_type_of_leaf_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "types.root"
    dtypes = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    leaves = [Leaf("n", np.dtype("u1"))]
    leaves += [Leaf(f"v_{one.strip('?')}b", np.dtype(one)) for one in dtypes]
    leaves += [Leaf(f"l_{one.strip('?')}b", np.dtype(one), "n") for one in dtypes]
    rng = np.random.default_rng(1)
    written: dict[str, list[np.ndarray]] = {leaf.name: [] for leaf in leaves}
    with RootFile(path, None) as file:
        tree = file.tree("t", "a title", leaves)
        for entries in (1, 70, 30):
            counts = rng.integers(0, 200, entries).astype("u1")
            offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
            columns = {"n": counts}
            for leaf in leaves[1:]:
                size = int(offsets[-1]) if leaf.counter else entries
                columns[leaf.name] = rng.integers(0, 2, size).astype(leaf.dtype)
            tree.write(tree.encode(columns, {"n": offsets}))
            for name, values in columns.items():
                written[name].append(values)
        tree.close()
    with uproot.open(path) as file:
        tree = file["t"]
        for leaf in leaves:
            found = tree[leaf.name].array()
            assert len(found) == 101
            values = ak.to_numpy(ak.flatten(found, axis=None))
            assert values.dtype == leaf.dtype
            assert np.array_equal(values, np.concatenate(written[leaf.name]))
            if leaf.counter:
                assert ak.array_equal(ak.num(found), tree["n"].array(), dtype_exact=False)
