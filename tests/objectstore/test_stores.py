from __future__ import annotations

from pathlib import Path

import pytest
from tests.objectstore.contract import StoreContract

from hepcache.errors import ConfigurationError, ObjectStoreError
from hepcache.objectstore import Store, is_store_uri, open_store


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"ntpl+mem://{tmp_path.name}/zee/")


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
        assert [one.name for one in (tmp_path / "a place" / "zee" / "a").iterdir()] == ["2"]
        store.delete(["a/2"])
        assert not (tmp_path / "a place" / "zee").exists()


def test_stores_of_one_memory_uri_share_their_objects() -> None:
    open_store("ntpl+mem://shared/a").put("1", b"x")
    assert open_store("ntpl+mem://shared/a").get("1") == b"x"
    assert list(open_store("ntpl+mem://shared/ab").list()) == []


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("s3://bucket/key", "ntpl+s3"),
        ("/a/path", "rados"),
        ("ntpl+file://host/dir", "absolute path"),
        ("ntpl+file:relative", "absolute path"),
        ("ntpl+mem://name#part", "credentials"),
        ("ntpl+s3+http://key:secret@host/bucket/path", "credentials"),
        ("ntpl+mem://name?wrong=1", "wrong"),
    ],
)
def test_a_wrong_uri_says_what_is_right(uri: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word.replace("+", r"\+")):
        open_store(uri)


def test_which_paths_are_stores() -> None:
    assert is_store_uri("NTPL+S3+HTTPS://host/bucket/path")
    assert not is_store_uri("root://host//file.root")
    assert not is_store_uri("/data/rados.root")
