"""Ntuples under ROOT's keys for DAOS: the bytes and keys, and that nothing is lost."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.objectstore.contract import StoreContract
from tests.rntuple import rootlayout
from tests.rntuple.samples import events
from tests.rntuple.stopping import StoppingStore, Stops

from hepcache.errors import (
    ConfigurationError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.formats.rntuple import examine, freshness_of
from hepcache.objectstore import FileStore, Store
from hepcache.rntuple import (
    MAPPINGS,
    NTuple,
    WriteOptions,
    get_file,
    ntuple_store,
    put_files,
    remove,
    verify,
    write_array,
)
from hepcache.rntuple.maintenance import used_objects
from hepcache.rntuple.metadata import file_metadata, load_metadata
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.root_on_daos import ntuple_index
from hepcache.rntuple.transfer import JOURNALS

pytestmark = pytest.mark.usefixtures("journal_at_each_object")


@pytest.fixture
def uri(daos: ctypes.CDLL, tmp_path: Path) -> str:
    return f"daos://hep/{tmp_path.name}/zee"


@pytest.fixture
def store(uri: str) -> Store:
    return ntuple_store(uri)


def values(daos: ctypes.CDLL, store: Store) -> rootlayout.Values:
    container = store.uri.split("/")[3]
    return rootlayout.stored_values(daos, container, rootlayout.INDEX["zee"])[0]


def pages_in_file(path: Path) -> list[bytes]:
    source = FileStore(path)
    metadata = file_metadata(source, str(path), "Events")
    found = [
        bytes(page.data)
        for number in range(len(metadata.clusters))
        for column in sealed_cluster(source, metadata, number)
        for page in column.pages
    ]
    source.close()
    return found


@pytest.mark.usefixtures("daos")
class TestStoreWithRootKeys(StoreContract):
    is_atomic = False

    @pytest.fixture(params=["", "/run3/zee"])
    def store(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
        store = ntuple_store(f"daos://hep/{tmp_path.name}{request.param}?object_class=RP_2GX")
        yield store
        store.close()


@pytest.mark.parametrize(
    ("name", "index"),
    # What g++ makes of std::hash<std::string>, folded as ROOT does it.
    [
        ("Events", 2278865193),
        ("ntuple", 1558923872),
        ("zee", 879379859),
        ("", 1951186587),
        ("a", 3465103673),
        ("a longer name of an ntuple", 3674034165),
        ("é", 1499801299),
    ],
)
def test_an_ntuple_has_the_index_that_root_gives_it(name: str, index: int) -> None:
    assert ntuple_index(name) == index


def test_what_we_write_has_roots_keys_and_bytes(
    files: list[Path], daos: ctypes.CDLL, store: Store
) -> None:
    put = put_files(store, files)
    assert (put.name, put.entries, put.clusters) == ("zee", 6000, 6)
    there = values(daos, store)
    assert put.nbytes == sum(map(len, there.values())) - 100
    where = rootlayout.METADATA, rootlayout.DKEY
    anchor = there.pop((*where, rootlayout.ANCHOR))
    header, footer = there.pop((*where, rootlayout.HEADER)), there.pop((*where, rootlayout.FOOTER))
    assert len(anchor) == 100
    version, epoch, major, _, _, *sizes = struct.unpack_from("<Q4H4I", anchor)
    assert (version, epoch, major) == (1, 1, 0)
    assert sizes[::2] == [len(header), len(footer)]
    assert anchor[32:38] == rootlayout.text("SX")
    (attribute,) = [akey for low, _, akey in there if low == rootlayout.PAGE_LISTS]
    del there[rootlayout.PAGE_LISTS, rootlayout.DKEY, attribute]
    metadata = load_metadata(store)
    assert sizes[1] == len(metadata.header)
    assert metadata.schema.name == "zee"
    # All else are pages: object per cluster, distribution key per column, attribute key per page.
    expected = [page for path in files for page in pages_in_file(path)]
    ordered = sorted(there)
    assert [there[key] for key in ordered] == expected
    assert sorted(akey for _, _, akey in there) == list(range(len(expected)))
    assert {low for low, _, _ in there} == set(range(6))
    assert {dkey for _, dkey, _ in there} == set(range(len(metadata.schema.columns)))


def test_there_and_back(files: list[Path], store: Store, tmp_path: Path) -> None:
    put_files(store, files)
    expected = ak.concatenate([events(0), events(1)])
    with NTuple(store) as ntuple:
        assert ak.array_equal(ntuple.arrays(), expected, dtype_exact=False)
        assert ak.array_equal(ntuple.arrays(["pt"], 1500, 4100).pt, expected.pt[1500:4100])
    verdict = verify(store)
    assert (verdict.entries, verdict.problems, verdict.orphans) == (6000, {}, ())
    assert dict(store.list()).keys() == {""}
    assert not dict(store.list(JOURNALS))
    assert get_file(store, tmp_path / "back.root") == 6000
    with uproot.open(tmp_path / "back.root") as file:
        assert ak.array_equal(file["zee"].arrays(), expected, dtype_exact=False)


@pytest.mark.parametrize("data_class", ["SX", "RP_2GX"])
@pytest.mark.parametrize("caged", [False, True])
def test_what_root_writes_is_read(
    files: list[Path], daos: ctypes.CDLL, tmp_path: Path, data_class: str, *, caged: bool
) -> None:
    """Clusters in two groups; with older releases, all pages of a column in one value."""
    source = FileStore(files[0])
    metadata = file_metadata(source, str(files[0]), "Events")
    stored: rootlayout.Values = {}
    # ROOT counts pages, or cages, over the whole ntuple.
    page, lists = 0, []
    checksum = int.from_bytes(metadata.header[-8:], "little")
    for group in ([0, 1], [2]):
        columns = []
        for cluster in group:
            found = []
            for column, sealed in enumerate(sealed_cluster(source, metadata, cluster)):
                pages, cage = [], b""
                # Each page twice, so that a cage has more than one.
                for copied in [*sealed.pages, *sealed.pages] if column == 1 else sealed.pages:
                    data = bytes(copied.data)
                    nbytes = len(data) - 8 * copied.checksummed
                    count = -copied.elements if copied.checksummed else copied.elements
                    if caged:
                        where = len(cage) << 32 | page
                        pages.append((count, rootlayout.locator(nbytes, where, caged=True)))
                        cage += data
                        continue
                    stored[cluster, column, page] = data
                    pages.append((count, rootlayout.locator(nbytes, page)))
                    page += 1
                if caged:
                    stored[cluster, column, page] = cage
                    page += 1
                found.append((pages, sealed.first_element, sealed.compression))
            columns.append(found)
        spans = [(cluster.first_entry, cluster.entries) for cluster in metadata.clusters]
        data = rootlayout.page_list(checksum, [spans[cluster] for cluster in group], columns)
        stored[rootlayout.PAGE_LISTS, rootlayout.DKEY, len(lists)] = data
        first, entries = spans[group[0]][0], sum(spans[cluster][1] for cluster in group)
        where = rootlayout.locator(len(data), len(lists))
        lists.append((first, entries, len(group), len(data), where))
    end = rootlayout.footer(checksum, lists)
    head = rootlayout.METADATA, rootlayout.DKEY
    stored[*head, rootlayout.HEADER], stored[*head, rootlayout.FOOTER] = metadata.header, end
    stored[*head, rootlayout.ANCHOR] = rootlayout.anchor(
        len(metadata.header), len(end), data_class
    )
    index = rootlayout.INDEX["Events"]
    rootlayout.store_values(daos, tmp_path.name, index, stored, data_class)

    store = ntuple_store(f"daos://hep/{tmp_path.name}/Events")
    read = load_metadata(store)
    assert (read.schema.name, read.entries, len(read.clusters)) == ("Events", 3000, 3)
    with NTuple(store) as ntuple:
        expected = events(0)
        for name in ("run", "pt", "flag"):
            assert ak.array_equal(ntuple.arrays([name])[name], expected[name], dtype_exact=False)
    pages = [bytes(page.data) for page in sealed_cluster(store, read, 1)[1].pages]
    wanted = [bytes(page.data) for page in sealed_cluster(source, metadata, 1)[1].pages]
    assert pages == [*wanted, *wanted]
    verdict = verify(store)
    assert (verdict.problems, verdict.orphans) == ({}, ())
    # A copy of it is as we write it, without cages, under another name.
    with pytest.raises(ConfigurationError, match="object_class"):
        ntuple_store(f"{store.uri}?object_class={'SX' if data_class != 'SX' else 'RP_2GX'}")
    remove(store)
    assert rootlayout.stored_values(daos, tmp_path.name, index) == ({}, set())
    source.close()


def test_pages_have_the_class_that_is_asked_for(
    files: list[Path], daos: ctypes.CDLL, tmp_path: Path
) -> None:
    uri = f"daos://hep/{tmp_path.name}/zee"
    put_files(ntuple_store(f"{uri}?object_class=RP_2GX"), files[:1])
    index = rootlayout.INDEX["zee"]
    _, classes = rootlayout.stored_values(daos, tmp_path.name, index)
    assert classes == {rootlayout.CLASSES["RP_2GX"]}
    assert verify(ntuple_store(uri)).problems == {}


def test_a_put_that_was_stopped_goes_on(files: list[Path], store: Store) -> None:
    stopping = StoppingStore(store, 9)
    options = WriteOptions(puts=1)
    with pytest.raises(Stops):
        put_files(stopping, files, options=options)
    with pytest.raises(ObjectMissingError):
        load_metadata(store)
    verdict = verify(store)
    assert verdict.unfinished
    assert len(verdict.orphans) == 10  # and the journal
    again = StoppingStore(store, 1000)
    assert put_files(again, files, options=options).kept_bytes > 0
    assert not set(again.names) & set(stopping.names)
    verdict = verify(store)
    assert (verdict.entries, verdict.problems, verdict.orphans) == (6000, {}, ())


def test_what_was_there_stays_until_all_of_another_is(
    files: list[Path], daos: ctypes.CDLL, store: Store
) -> None:
    put_files(store, files[:1])
    before, first = values(daos, store), used_objects(load_metadata(store))
    with pytest.raises(Stops):
        put_files(StoppingStore(store, 7), files[1:])
    there = values(daos, store)
    assert {key: there[key] for key in before} == before
    assert len(there) == len(before) + 7
    assert ak.array_equal(NTuple(store).arrays(), events(0), dtype_exact=False)
    remove(store, orphans_only=True)
    assert values(daos, store) == before
    put_files(store, files[1:])
    assert ak.array_equal(NTuple(store).arrays(), events(1), dtype_exact=False)
    assert {name for name, _ in verify(store).orphans} == first
    remove(store, orphans_only=True)
    assert {name for name, _ in store.list(".root/")} == used_objects(load_metadata(store))
    remove(store)
    assert values(daos, store) == {}
    assert [*store.list(), *store.list(".put/")] == []


@pytest.mark.parametrize("mapping", [name for name in MAPPINGS if name != "cluster_column"])
def test_ours_and_roots_scheme_replace_each_other(
    files: list[Path], daos: ctypes.CDLL, store: Store, mapping: str
) -> None:
    for number, used in enumerate(["", mapping, ""]):
        data = events(number, 500)
        write_array(store, "zee", data, WriteOptions(mapping=used))
        assert ak.array_equal(NTuple(store).arrays(), data, dtype_exact=False)
        assert dict(store.list()).keys() == {""}
        assert verify(store).problems == {}
        if number:
            assert verify(store).orphans
            remove(store, orphans_only=True)
        assert verify(store).orphans == ()
        assert bool(values(daos, store)) is not bool(used)
    remove(store)
    with pytest.raises(ObjectMissingError):
        load_metadata(store)


def test_equal_pages_are_stored_one_by_one(daos: ctypes.CDLL, store: Store) -> None:
    # ROOT reads each attribute key into the memory of one page only.
    data = ak.Array({"x": np.zeros(4096), "y": np.zeros(4096)})
    write_array(store, "zee", data, WriteOptions(page_bytes=4096))
    assert sum(low < rootlayout.PAGE_LISTS for low, _, _ in values(daos, store)) == 16
    assert ak.array_equal(NTuple(store).arrays(), data)


@pytest.mark.parametrize("damage", ["flip", "cut", "long", "gone"])
def test_damage_is_found_and_named(store: Store, damage: str) -> None:
    write_array(store, "zee", events(3), WriteOptions(page_bytes=4096))
    metadata = load_metadata(store)
    name = metadata.name_of(int(metadata.clusters[0].columns[1].objects[1]))
    assert name == ".root/0/1/7"
    data = bytearray(store.get(name))
    data[len(data) // 2] ^= 4
    store.delete([name])
    with pytest.raises(ObjectMissingError, match="page 7 of column 1 in cluster 0"):
        store.get_ranges(name, [0], [1])
    if damage != "gone":
        store.put(name, {"flip": data, "cut": data[:-3], "long": data + b"more"}[damage])
    assert list(verify(store).problems) == [name]
    with pytest.raises(ObjectStoreError) as caught:
        NTuple(store).arrays()
    assert caught.value.name == name


def test_a_damaged_anchor_is_none(files: list[Path], daos: ctypes.CDLL, uri: str) -> None:
    put_files(ntuple_store(uri), files[:1])
    container, index = uri.split("/")[3], rootlayout.INDEX["zee"]
    key = rootlayout.METADATA, rootlayout.DKEY, rootlayout.ANCHOR
    good = values(daos, ntuple_store(uri))[key]
    for bad, problem in (
        (good[:50] + b"\1" + good[51:], "checksum"),
        (b"\2" + good[1:], "version 2"),
        (good[:16] + b"\xff" * 4 + good[20:], "put it again"),
        (good[:32], "object class"),
    ):
        rootlayout.store_values(daos, container, index, {key: bad})
        with pytest.raises(ObjectDamagedError, match=problem):
            load_metadata(ntuple_store(uri))
    remove(ntuple_store(uri))
    assert values(daos, ntuple_store(uri)) == {}


def test_the_catalogue_sees_that_an_ntuple_was_written_anew(files: list[Path], uri: str) -> None:
    put_files(ntuple_store(uri), files[:1])
    record, fresh = examine(uri, "zee", {})
    assert (record.tree, record.entries, record.clusters) == ("zee", 3000, (0, 1000, 2000, 3000))
    assert record.uuid == load_metadata(ntuple_store(uri)).anchor.uuid != ""
    assert freshness_of(uri, {}).validator == fresh.validator
    put_files(ntuple_store(uri), files[:1])
    assert freshness_of(uri, {}).validator != fresh.validator
