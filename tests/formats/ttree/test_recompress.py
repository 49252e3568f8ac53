from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import awkward as ak
import pytest
import uproot

from hepcache.errors import RecompressError
from hepcache.formats.ttree.recompress import recompress_files
from hepcache.samples.nanoaod import write_nanoaod


@pytest.mark.parametrize("name", ["nano_tree", "nano_dy_empty"])
def test_copies_of_real_files_are_equal(shared_data: Path, tmp_path: Path, name: str) -> None:
    source = shared_data / "nanoaod" / f"{name}.root"
    (made,) = recompress_files([source], tmp_path, compression="zstd:10", jobs=1)
    with uproot.open(source) as before, uproot.open(made.copy) as after:
        assert set(after.keys(cycle=False)) | set(made.left_out) >= set(before.keys(cycle=False))
        for tree in after.keys(cycle=False):
            old, new = before[tree], after[tree]
            # Counters stand before what they count; the rest keeps its order.
            assert sorted((b.name, b.typename, b.title) for b in new.branches) == sorted(
                (b.name, b.typename, b.title) for b in old.branches
            )
            for branch in old.branches:
                theirs, ours = branch.array(), new[branch.name].array()
                assert ak.array_equal(theirs, ours, equal_nan=True), branch.name
                assert theirs.type == ours.type


def test_columns_and_clusters(tmp_path: Path) -> None:
    (source,) = write_nanoaod(
        tmp_path / "in", events=300, cluster=100, branches=["Jet_pt", "Jet_eta", "run"], jobs=1
    )
    (made,) = recompress_files([source], tmp_path / "out", columns=["Jet_p*"], jobs=1)
    with uproot.open(made.copy) as file:
        assert set(file["Events"].keys()) == {"Jet_pt", "nJet"}
        assert file["Events"].common_entry_offsets() == [0, 100, 200, 300]


def test_clusters_are_joined_whole_and_equal(tmp_path: Path) -> None:
    (source,) = write_nanoaod(
        tmp_path / "in", events=350, cluster=100, branches=["Jet_pt", "run"], jobs=1
    )
    (made,) = recompress_files([source], tmp_path / "out", cluster=250, jobs=1)
    with uproot.open(source) as before, uproot.open(made.copy) as after:
        assert after["Events"].common_entry_offsets() == [0, 200, 350]
        for name in ("Jet_pt", "run", "nJet"):
            old, new = before["Events"][name].array(), after["Events"][name].array()
            assert ak.array_equal(old, new)


def test_nothing_is_replaced_by_accident(tmp_path: Path) -> None:
    (source,) = write_nanoaod(tmp_path, events=10, branches=["run"], jobs=1)
    with pytest.raises(RecompressError, match="would replace it"):
        recompress_files([source], tmp_path, jobs=1)
    recompress_files([source], tmp_path / "out", jobs=1)
    with pytest.raises(RecompressError, match="--overwrite"):
        recompress_files([source], tmp_path / "out", jobs=1)
    recompress_files([source], tmp_path / "out", jobs=1, overwrite=True)
    with pytest.raises(RecompressError, match="would replace that"):
        recompress_files([source, tmp_path / "out" / source.name], tmp_path / "third", jobs=1)


def test_damaged_and_foreign_inputs_are_named(tmp_path: Path) -> None:
    text = tmp_path / "text.root"
    text.write_text("no ROOT file")
    (good,) = write_nanoaod(tmp_path / "in", events=2000, branches=["Jet_pt"], jobs=1)
    damaged = tmp_path / "damaged.root"
    data = bytearray(good.read_bytes())
    with uproot.open(good) as file:
        branch = file["Events"]["Jet_pt"]
        seek, size = int(branch.member("fBasketSeek")[0]), int(branch.member("fBasketBytes")[0])
    data[seek + size // 2 : seek + size // 2 + 100] = bytes(100)
    damaged.write_bytes(data)
    for path in (text, damaged, tmp_path / "missing.root"):
        with pytest.raises(RecompressError, match=path.name):
            recompress_files([path], tmp_path / "out", jobs=1)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_killed_recompression_leaves_no_final_name(tmp_path: Path) -> None:
    (source,) = write_nanoaod(
        tmp_path / "in", events=2000, cluster=200, compression="none", jobs=1
    )
    code = (
        "from hepcache.formats.ttree.recompress import recompress_files;"
        f"recompress_files([{str(source)!r}], {str(tmp_path / 'out')!r}, jobs=1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").glob(".*.part")) and time.monotonic() < deadline:
        if process.poll() is not None:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert list((tmp_path / "out").glob(".*.part"))
    assert not list((tmp_path / "out").glob("*.root"))
