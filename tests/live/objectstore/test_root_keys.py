"""ROOT reads the envelopes and locators of an ntuple that we store for its DAOS backend."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from tests.live.objectstore.test_root import events, in_root, root
from tests.rntuple import rootlayout

from hepcache.rntuple import WriteOptions, ntuple_store, write_array
from hepcache.rntuple.metadata import load_metadata

__all__ = ["root"]  # the fixture

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_root_would_find_every_page(
    root: Path, daos: ctypes.CDLL, tmp_path: Path, compression: str
) -> None:
    options = WriteOptions(compression=compression, page_bytes=4096, cluster_bytes=100_000)
    # The second replaces the first, so that its keys are not the lowest.
    for _ in range(2):
        write_array(f"daos://hep/{compression}/zee", "Events", events(), options)
    index = rootlayout.INDEX["zee"]
    stored, _ = rootlayout.stored_values(daos, compression, index)
    values = tmp_path / "values"
    values.mkdir()
    for key, value in stored.items():
        (values / "_".join(map(str, key))).write_bytes(value)
    in_root(root, "keys.py", values, "zee", tmp_path / "seen.json")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["index"], seen["name"]) == (index, "zee")
    metadata = load_metadata(ntuple_store(f"daos://hep/{compression}/zee"))
    assert seen["fields"] == list(metadata.schema.names)
    ours = [
        (cluster, column, elements, nbytes + 8)
        for cluster, one in enumerate(metadata.clusters)
        for column, pages in enumerate(one.columns)
        for elements, nbytes in zip(pages.elements.tolist(), pages.nbytes.tolist(), strict=True)
    ]
    theirs = sorted(seen["pages"], key=lambda page: page[:2])
    assert [(cluster, column, n, size) for cluster, column, _, n, size in theirs] == ours
    assert len(metadata.clusters) > 2
    keys = [tuple(page[:3]) for page in theirs]
    assert len(set(keys)) == len(keys)
    assert all(len(stored[key]) == page[4] for key, page in zip(keys, theirs, strict=True))
    assert np.diff([key[2] for key in keys]).min() == 1
