"""One small tree with every kind of column, in several clusters and compressions."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.rootfiles import bad_files, catalogue, write_tree  # noqa: F401 - fixtures

from hepcache.formats.source import TreeRef

CLUSTERS = (0, 300, 550, 1000)


def columns(n: int, seed: int) -> dict[str, ak.Array | np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2.0, n)
    total = int(counts.sum())
    jets = ak.zip(
        {
            "pt": ak.unflatten(rng.exponential(40, total).astype(np.float32), counts),
            "flag": ak.unflatten(rng.random(total) < 0.5, counts),
            "id": ak.unflatten(rng.integers(-5, 5, total).astype(np.int16), counts),
        }
    )
    met = rng.exponential(30, n).astype(np.float32)
    met[::17] = np.nan
    return {
        "event": np.arange(n, dtype=np.uint64) + seed,
        "met": met,
        "weight": rng.normal(size=n),
        "trigger": rng.random(n) < 0.1,
        "matrix": rng.normal(size=(n, 3)),
        "Jet": jets,
    }


@pytest.fixture(scope="session", params=["ZSTD", "ZLIB", "LZ4", "LZMA", None])
def compression(request: pytest.FixtureRequest) -> uproot.compression.Compression | None:
    return getattr(uproot, request.param)(4) if request.param else None


def write_mixed_tree(path: Path, compression: object) -> Path:
    with uproot.recreate(path, compression=compression) as file:
        first = columns(CLUSTERS[1], 1)
        file.mktree(
            "Events",
            {
                name: values.type
                if isinstance(values, ak.Array)
                else (
                    values.dtype
                    if values.ndim == 1
                    else np.dtype((values.dtype, values.shape[1:]))
                )
                for name, values in first.items()
            },
        )
        for seed, (start, stop) in enumerate(pairwise(CLUSTERS)):
            file["Events"].extend(columns(stop - start, seed + 1))
    return path


def tree_ref(path: Path, boundaries: tuple[int, ...] = CLUSTERS, tag: str = "t") -> TreeRef:
    with uproot.open(path) as file:
        return TreeRef(str(path), "Events", str(file.file.uuid), tag, "", boundaries)


@pytest.fixture(scope="session")
def tree_path(tmp_path_factory: pytest.TempPathFactory, compression: object) -> Path:
    return write_mixed_tree(tmp_path_factory.mktemp("tree") / "tree.root", compression)


@pytest.fixture(scope="session")
def zstd_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed_tree(tmp_path_factory.mktemp("tree") / "tree.root", uproot.ZSTD(4))
