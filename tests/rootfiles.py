"""Made-up ROOT files, good and bad."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import uproot

from hepcache.catalogue.catalogue import Catalogue

WriteTree = Callable[..., Path]
LONG_AGO = (1_600_000_000, 1_600_000_000)


def settle(path: Path) -> None:
    """Make a file look as if nobody had written it lately."""
    os.utime(path, LONG_AGO)


@pytest.fixture
def write_tree(tmp_path: Path) -> WriteTree:
    """Write a tree with one cluster per given length."""

    def write(
        name: str = "file.root",
        lengths: tuple[int, ...] = (10, 20, 5),
        *,
        tree: str = "Events",
        columns: tuple[str, ...] = ("x", "y"),
        dtype: type = np.float32,
        seed: int = 0,
        settled: bool = True,
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        with uproot.recreate(path) as file:
            made = file.mktree(tree, dict.fromkeys(columns, dtype))
            for length in lengths:
                made.extend({column: rng.random(length).astype(dtype) for column in columns})
        if settled:
            settle(path)
        return path

    return write


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    with Catalogue(tmp_path / "known" / "catalogue.sqlite") as opened:
        yield opened


@pytest.fixture
def bad_files(tmp_path: Path, write_tree: WriteTree) -> dict[Path, str]:
    """Files that can't be analysed, each with words its reason must hold."""
    directory = tmp_path / "bad"
    directory.mkdir()
    whole = write_tree("whole.root", (2000, 2000)).read_bytes()
    bad = {
        "missing.root": ("no such file", None),
        "empty.root": (r"empty \(0 bytes\)", b""),
        "text.root": ("not a ROOT file: it begins with b'hell'", b"hello"),
        "four.root": ("damaged or unreadable", whole[:4]),
        "header.root": ("truncated|damaged or unreadable", whole[:60]),
        "half.root": ("truncated: .* bytes of .*; copy it again", whole[: len(whole) // 2]),
        "last.root": ("truncated: .* bytes of", whole[:-1]),
        "zeros.root": ("damaged or unreadable|no tree", whole[:300] + bytes(len(whole) - 300)),
        "other.root": ("no tree 'Events' in it; the trees there are: Muons, dir/Jets", None),
        "treeless.root": ("no tree 'Events' in it; there is no tree at all", None),
        "below": ("a directory; a ROOT file was expected", None),
        "no/such/volume.root": (f"there is nothing below {directory}; is the volume", None),
    }
    for name, (_, content) in bad.items():
        if content is not None:
            (directory / name).write_bytes(content)
    (directory / "below").mkdir()
    with uproot.recreate(directory / "other.root") as file:
        file.mktree("Muons", {"x": np.int32}).extend({"x": np.arange(3)})
        file.mktree("dir/Jets", {"x": np.int32}).extend({"x": np.arange(3)})
    with uproot.recreate(directory / "treeless.root") as file:
        file["histogram"] = np.histogram(np.arange(5))
    return {directory / name: reason for name, (reason, _) in bad.items()}
