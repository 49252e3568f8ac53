from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import uproot
from tests.rootfiles import WriteTree, settle

from hepcache.errors import BadFileError
from hepcache.formats.registry import probe

# Entries, UUID, tag and fingerprint of coffea's and scikit-hep's files. Tags and
# fingerprints are parts of cache keys: when one changes here, everything that
# users have cached is read again, so let it be for a reason.
REAL = {
    "nano_dy.root": (40, "a9490124-3648-11ea-89e9-f5b55c90beef",
     "e5e5c006f40a7e64", "1a9eb8445db59c3b"),
    "nano_dy_empty.root": (0, "f73b274c-da3c-11f0-b00b-2100a8c0beef",
     "f22e62ad8db4744e", "1a9eb8445db59c3b"),
    "nano_dy_rntuple.root": (40, "5aa41eba-a9f5-11f0-ba63-0f00a8c0beef",
     "96b9ca42397b4d42", "badd90c0bb8c0788"),
    "nano_tree.root": (10, "6e51c55a-5cc9-31e9-9553-cc5c2df46e95",
     "53afcd5a6bab3ff4", "62df3dff2dcf60a7"),
    "nano_tt_v15.root": (200, "6ac7019c-2941-11f1-b022-001a4abb4031",
     "21be0b70bc838a28", "81215065bb8115bf"),
    "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root": (
        1000, "bdc14542-a684-11ef-9fe3-e2a3090abeef",
     "895712dd29fbdc29", "fa8688367499025e",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_files(shared_data: Path, name: str) -> None:
    path = shared_data / "nanoaod" / name
    record = probe(str(path), "Events")
    assert (record.entries, record.uuid, record.tag, record.fingerprint) == REAL[name]
    assert record.clusters == ((0, record.entries) if record.entries else (0,))
    assert record.tree == "Events"
    assert record.size == path.stat().st_size
    assert record.validator == f"{record.size}-{path.stat().st_mtime_ns}"


def test_files_of_one_production_share_a_fingerprint_and_nothing_else(shared_data: Path) -> None:
    full, empty = (
        probe(str(shared_data / "nanoaod" / name))
        for name in ("nano_dy.root", "nano_dy_empty.root")
    )
    assert full.fingerprint == empty.fingerprint
    assert full.tag != empty.tag


def test_clusters_are_those_that_uproot_finds(write_tree: WriteTree) -> None:
    path = write_tree(lengths=(10, 20, 5, 1, 100))
    record = probe(str(path), "Events")
    with uproot.open({path: "Events"}) as tree:
        assert list(record.clusters) == tree.common_entry_offsets()
    assert record.clusters == (0, 10, 30, 35, 36, 136)


def test_clusters_of_an_rntuple(tmp_path: Path) -> None:
    path = tmp_path / "ntuple.root"
    with uproot.recreate(path) as file:
        made = file.mkrntuple("Events", {"x": np.arange(7)})
        made.extend({"x": np.arange(4)})
    record = probe(str(path), "Events")
    assert record.clusters == (0, 7, 11)


def test_a_tree_without_a_single_fill(tmp_path: Path) -> None:
    path = tmp_path / "none.root"
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": np.float64})
    record = probe(str(path), "Events")
    assert (record.entries, record.clusters) == (0, (0,))


def test_copy_and_touch_keep_the_tag(write_tree: WriteTree, tmp_path: Path) -> None:
    path = write_tree()
    copy = tmp_path / "elsewhere" / "copy.root"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    before = probe(str(path), "Events")
    path.touch()
    after = probe(str(path), "Events")
    assert before.validator != after.validator
    assert before.tag == after.tag == probe(str(copy), "Events").tag


def test_other_content_under_the_same_uuid_changes_the_tag(write_tree: WriteTree) -> None:
    first = write_tree("first.root", seed=1, lengths=(1000, 1000))
    second = write_tree("second.root", seed=2, lengths=(1000, 1000))
    one, other = probe(str(first), "Events"), probe(str(second), "Events")
    data = second.read_bytes()
    uuids = [bytes.fromhex(record.uuid.replace("-", "")) for record in (one, other)]
    assert data.count(uuids[1]) >= 1
    second.write_bytes(data.replace(uuids[1], uuids[0]))
    forged = probe(str(second), "Events")
    assert forged.uuid == one.uuid
    assert forged.tag != one.tag


@pytest.mark.parametrize(
    "change", [{"columns": ("y", "x")}, {"columns": ("x",)}, {"dtype": np.float64}]
)
def test_other_branches_change_the_fingerprint(
    write_tree: WriteTree, change: dict[str, object]
) -> None:
    plain = probe(str(write_tree("plain.root")), "Events")
    longer = probe(str(write_tree("longer.root", (7,), seed=3)), "Events")
    changed = probe(str(write_tree("changed.root", **change)), "Events")
    assert plain.fingerprint == longer.fingerprint != changed.fingerprint


def test_titles_and_counters_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    prints = []
    for title, counter in [("a", "nx"), ("b", "nx"), ("a", "ny")]:
        path = tmp_path / "file.root"
        with uproot.recreate(path) as file:
            file.mktree(
                "Events",
                {"x": "var * float32"},
                title=title,
                counter_name=lambda counted, counter=counter: counter,
            )
        prints.append(probe(str(path), "Events").fingerprint)
    # A tree's own title is in no form; a counter's name is.
    assert prints[0] == prints[1] != prints[2]


def test_trees_in_directories_and_by_default(tmp_path: Path) -> None:
    path = tmp_path / "file.root"
    with uproot.recreate(path) as file:
        file.mktree("deep/er/Jets", {"x": np.int32}).extend({"x": np.arange(3)})
    assert probe(str(path), "deep/er/Jets").tree == "deep/er/Jets"
    assert probe(str(path), "/deep/er/Jets;1").tree == "deep/er/Jets"
    assert probe(str(path)).tree == "deep/er/Jets"
    with uproot.update(path) as file:
        file.mktree("Runs", {"x": np.int32}).extend({"x": np.arange(2)})
    with pytest.raises(
        BadFileError, match=r"which tree\? the trees there are: deep/er/Jets, Runs"
    ):
        probe(str(path))
    with uproot.update(path) as file:
        file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(2)})
    assert probe(str(path)).tree == "Events"


def test_only_an_old_cycle_keeps_its_number(tmp_path: Path) -> None:
    path = tmp_path / "file.root"
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(3)})
    with uproot.update(path) as file:
        file.mktree("Events", {"x": np.int32}).extend({"x": np.arange(5)})
    newest, old, new = (probe(str(path), tree) for tree in ("Events", "Events;1", "Events;2"))
    assert (newest.tree, newest.entries) == ("Events", 5)
    assert (old.tree, old.entries) == ("Events;1", 3)
    assert new == newest
    assert old.tag != newest.tag
    with pytest.raises(BadFileError, match="no tree 'Events;7'"):
        probe(str(path), "Events;7")


def test_bad_files_say_what_is_wrong(bad_files: dict[Path, str]) -> None:
    for path, reason in bad_files.items():
        with pytest.raises(BadFileError) as caught:
            probe(str(path), "Events")
        assert re.search(reason, caught.value.problems[str(path)]), caught.value


def test_every_truncation_of_a_real_file_is_refused(shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "nanoaod" / "nano_dy_rntuple.root").read_bytes()
    path = tmp_path / "cut.root"
    for size in np.linspace(1, len(whole) - 1, 23).astype(int):
        path.write_bytes(whole[:size])
        with pytest.raises(BadFileError):
            probe(str(path), "Events")


def test_relative_paths_and_file_urls(
    write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tree("with space.root")
    monkeypatch.chdir(path.parent)
    record = probe(path.name, "Events")
    assert record.path == str(path)
    assert probe(path.as_uri(), "Events") == record


def test_a_file_that_keeps_changing_is_refused(write_tree: WriteTree) -> None:
    path = write_tree()

    class Writing(dict[str, object]):
        """Options whose reading writes the file, as a job would that is still running."""

        def items(self):  # type: ignore[no-untyped-def]
            stamp = path.stat().st_mtime + 10
            os.utime(path, (stamp, stamp))
            return super().items()

    with pytest.raises(BadFileError, match="being written right now"):
        probe(str(path), "Events", options=Writing(timeout=10))
    settle(path)
    assert probe(str(path), "Events").entries == 35
