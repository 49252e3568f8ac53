from __future__ import annotations

from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.rntuple.samples import ENTRIES, events
from tests.rntuple.stopping import StoppingStore, Stops

from hepcache.errors import ConfigurationError, ObjectDamagedError, ObjectStoreError
from hepcache.objectstore import FileStore, Store, open_store
from hepcache.rntuple import (
    BELOW,
    MAPPINGS,
    NTuple,
    WriteOptions,
    get_file,
    put_files,
    remove,
    verify,
    write_array,
)
from hepcache.rntuple.maintenance import find_orphans, used_objects
from hepcache.rntuple.metadata import Metadata, file_metadata, load_metadata
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.transfer import JOURNALS

pytestmark = pytest.mark.usefixtures("journal_at_each_object")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"ntpl+mem://{tmp_path.name}/zee")


def pages_of(store: Store, metadata: Metadata) -> list[list[bytes]]:
    return [
        [
            bytes(page.data)
            for column in sealed_cluster(store, metadata, number)
            for page in column.pages
        ]
        for number in range(len(metadata.clusters))
    ]


def pages_in_file(path: Path) -> list[list[bytes]]:
    source = FileStore(path)
    found = pages_of(source, file_metadata(source, str(path), "Events"))
    source.close()
    return found


def pages_in_store(store: Store) -> list[list[bytes]]:
    return pages_of(store, load_metadata(store))


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("template", [BELOW, WriteOptions().template])
def test_pages_are_the_same_bit_by_bit_there_and_back(
    files: list[Path], store: Store, tmp_path: Path, mapping: str, template: str
) -> None:
    options = WriteOptions(mapping=mapping, template=template)
    done = []
    put = put_files(store, files, options=options, progress=done.append)
    assert (put.name, put.entries, put.clusters, put.kept_bytes) == ("Events", 6000, 6, 0)
    assert sum(done) == 6000
    pages = [page for path in files for page in pages_in_file(path)]
    assert pages_in_store(store) == pages
    with NTuple(store) as ntuple:
        expected = ak.concatenate([events(0), events(1)])
        assert ak.array_equal(ntuple.arrays(), expected, dtype_exact=False)
    verdict = verify(store)
    assert (verdict.entries, verdict.problems, verdict.orphans) == (6000, {}, ())
    assert not dict(store.list(JOURNALS))
    assert get_file(store, tmp_path / "back.root") == 6000
    assert pages_in_file(tmp_path / "back.root") == pages
    with uproot.open(tmp_path / "back.root") as file:
        assert ak.array_equal(file["Events"].arrays(), expected, dtype_exact=False)
    with pytest.raises(ConfigurationError, match="--overwrite"):
        get_file(store, tmp_path / "back.root")


def test_a_put_that_was_stopped_goes_on(files: list[Path], store: Store) -> None:
    stopping = StoppingStore(store, 4)
    options = WriteOptions(puts=1)
    with pytest.raises(Stops):
        put_files(stopping, files, options=options)
    with pytest.raises(ObjectStoreError):
        load_metadata(store)
    verdict = verify(store)
    assert verdict.unfinished
    assert len(verdict.orphans) == 5  # and the journal
    again = StoppingStore(store, 100)
    put = put_files(again, files, options=options)
    assert put.kept_bytes > 0
    assert not set(again.names) & set(stopping.names)
    assert pages_in_store(store) == [pages for path in files for pages in pages_in_file(path)]
    assert verify(store).orphans == ()


def test_another_put_does_not_go_on(files: list[Path], store: Store) -> None:
    with pytest.raises(Stops):
        put_files(StoppingStore(store, 4), files)
    left = {name for name, _ in store.list(".pages/")}
    put = put_files(store, files[:1])
    assert put.kept_bytes == 0
    assert not left & used_objects(load_metadata(store))
    left |= {name for name, _ in store.list(JOURNALS)}
    assert {name for name, _ in find_orphans(store, load_metadata(store))} == left
    assert set(remove(store, orphans_only=True)) == left
    assert pages_in_store(store) == pages_in_file(files[0])


def test_a_replaced_ntuple_leaves_orphans_and_then_nothing(
    files: list[Path], store: Store
) -> None:
    put_files(store, files[:1])
    first = used_objects(load_metadata(store))
    put_files(store, files[1:])
    assert pages_in_store(store) == pages_in_file(files[1])
    assert {name for name, _ in verify(store).orphans} == first
    store.put("another/ntuple", b"is none of ours")
    remove(store)
    assert dict(store.list()) == {"another/ntuple": 15}
    assert dict(store.list(".pages/")) == {}


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_is_found_and_named(files: list[Path], store: Store, damage: str) -> None:
    write_array(store, "Events", events(3), WriteOptions(mapping="page", page_bytes=4096))
    metadata = load_metadata(store)
    name = metadata.name_of(int(metadata.clusters[0].columns[1].objects[0]))
    data = bytearray(store.get(name))
    if damage == "flip":
        data[len(data) // 2] ^= 4
    store.delete([name])
    if damage != "gone":
        store.put(name, data[:-3] if damage == "cut" else data)
    verdict = verify(store)
    assert list(verdict.problems) == [name]
    with pytest.raises(ObjectStoreError) as caught:
        NTuple(store).arrays()
    assert caught.value.name == name


def test_objects_that_a_store_has_changed_are_found_after_the_put(
    files: list[Path], store: Store
) -> None:
    class Lying(StoppingStore):
        def put(self, name: str, data: bytes) -> None:
            wrong = bytes(data)[:-1] + b"?"
            self._store.put(name, wrong if name.endswith("/1") else data)

    with pytest.raises(ObjectDamagedError, match="not what was put"):
        put_files(Lying(store, 0), files)


def test_a_tree_is_converted_when_that_is_wanted(store: Store, tmp_path: Path) -> None:
    data = events(5)[["run", "met", "pt", "flag"]]
    for number in range(2):
        with uproot.recreate(tmp_path / f"{number}.root") as file:
            file.mktree("Events", {name: data[name].type for name in data.fields})
            file["Events"].extend({name: data[name] for name in data.fields})
    paths = [tmp_path / "0.root", tmp_path / "1.root"]
    with pytest.raises(ConfigurationError, match="--convert"):
        put_files(store, paths)
    put = put_files(store, paths, convert=True)
    assert (put.entries, put.converted) == (2 * ENTRIES, True)
    found = NTuple(store).arrays(["run", "met", "pt", "flag"])
    assert ak.array_equal(found, ak.concatenate([data, data]), dtype_exact=False)


def test_a_converted_tree_keeps_its_types_and_counters(store: Store, tmp_path: Path) -> None:
    kinds = ["bool", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
    path = tmp_path / "tree.root"
    with uproot.recreate(path) as file:
        branches = {f"x_{kind}": np.arange(4).astype(kind) for kind in kinds}
        lists = ak.unflatten(np.arange(6, dtype="u2"), [0, 3, 1, 2])
        file.mktree("Events", {k: v.dtype for k, v in branches.items()} | {"jet": lists.type})
        file["Events"].extend(branches | {"jet": lists})
    put_files(store, [path], convert=True)
    found = NTuple(store).arrays()
    with uproot.open(path) as file:
        expected = file["Events"].arrays()
    assert "njet" in found.fields
    assert found.type == expected.type
    assert ak.array_equal(found, expected, dtype_exact=True)


def test_files_that_do_not_belong_together(
    files: list[Path], store: Store, tmp_path: Path
) -> None:
    with uproot.recreate(tmp_path / "other.root") as file:
        file.mkrntuple("Events", {"other": np.arange(3)})
    with pytest.raises(ConfigurationError, match=r"other\.root"):
        put_files(store, [files[0], tmp_path / "other.root"])
    with pytest.raises(ConfigurationError, match="Events"):
        put_files(store, files, tree="Runs")
    (tmp_path / "none.root").write_bytes(b"no ROOT file at all")
    with pytest.raises(ObjectDamagedError, match=r"none\.root"):
        put_files(store, [tmp_path / "none.root"])
    with pytest.raises(ObjectStoreError):
        load_metadata(store)
