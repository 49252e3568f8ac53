"""Objects in a local directory, and a local file as a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.objectstore.contract import StoreContract

from hepcache.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError
from hepcache.objectstore import FileStore, Request, Store, open_store


class TestDirectory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"ntpl+file://{tmp_path}/a place/zee")

    def test_a_killed_put_shows_nothing_but_its_rest(self, store: Store, tmp_path: Path) -> None:
        store.put("cluster/1", b"whole")
        (tmp_path / "a place" / "zee" / "cluster" / "part-1-ab").write_bytes(b"ha")
        assert dict(store.list()) == {"cluster/1": 5, "cluster/part-1-ab": 2}
        store.delete(["cluster/part-1-ab"])
        assert dict(store.list()) == {"cluster/1": 5}

    def test_a_failed_put_leaves_nothing(self, store: Store, tmp_path: Path) -> None:
        store.put("1", b"old")
        (tmp_path / "a place" / "zee" / "2").mkdir()
        with pytest.raises(ObjectStoreError):
            store.put("2", b"a file can't replace a directory")
        assert dict(store.list()) == {"1": 3}

    def test_empty_directories_go(self, store: Store, tmp_path: Path) -> None:
        store.put("a/b/1", b"x")
        store.put("a/2", b"x")
        store.delete(["a/b/1"])
        assert [path.name for path in (tmp_path / "a place" / "zee" / "a").iterdir()] == ["2"]
        store.delete(["a/2"])
        assert not (tmp_path / "a place" / "zee").exists()


def test_a_file_is_a_store_that_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    store = FileStore(path)
    requests = [Request("", 90, 10), Request("", 5, 2)]
    room = np.empty(50, np.uint8)
    expected = [bytes(range(90, 100)), bytes(range(5, 7))]
    assert list(map(bytes, store.begin(requests, room).result())) == expected
    assert bytes(room[:12]) == b"".join(expected)
    assert list(map(bytes, store.begin(requests).result())) == expected
    assert store.get("") == path.read_bytes()
    assert list(store.list()) == [("", 100)]
    with pytest.raises(ObjectDamagedError, match="ends at byte 100, before byte 101"):
        store.get_ranges("", [90], [11])
    with pytest.raises(ObjectStoreError, match="only read"):
        store.put("", b"x")
    with pytest.raises(ObjectStoreError, match="only read"):
        store.delete([""])
    store.close()
    with pytest.raises(ObjectMissingError, match="no such file"):
        FileStore(tmp_path / "none")


@pytest.mark.parametrize("place", ["file", "directory"])
def test_ranges_beyond_four_gibibytes(place: str, tmp_path: Path) -> None:
    """Offsets don't fit in 32 bits; the file is sparse."""
    path = tmp_path / "store" / "1"
    path.parent.mkdir()
    begin = (4 << 30) + 12345
    with path.open("wb") as file:
        file.seek(begin)
        file.write(b"far behind")
    named = place == "directory"
    store: Store = open_store(f"ntpl+file://{tmp_path}/store") if named else FileStore(path)
    name = "1" if named else ""
    found = store.get_ranges(name, [begin + 4, 0, begin], [6, 3, 3])
    assert [bytes(part) for part in found] == [b"behind", b"\0\0\0", b"far"]
    assert dict(store.list()) == {name: begin + 10}
    with pytest.raises(ObjectDamagedError):
        store.get_ranges(name, [begin + 8], [3])
