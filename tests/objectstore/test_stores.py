from __future__ import annotations

import socket
from pathlib import Path

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import MemoryStore
from tests.objectstore.contract import StoreContract

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore import Store, is_store_uri, open_store
from hepcache.objectstore.answers import answer_error
from hepcache.objectstore.cloud import CloudStore, _s3


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


class TestCloud(StoreContract):
    """Against obstore's own service in memory; S3 itself is tests/live/objectstore's part."""

    @pytest.fixture
    def store(self) -> Store:
        return CloudStore("ntpl+s3://bucket/run3/zee", MemoryStore(), "run3/zee", 8, "set the key")


@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        (FileNotFoundError("404: <Code>NoSuchKey</Code><Message>gone</Message>"),
         ObjectMissingError, "no such object"),
        (FileNotFoundError("404: <Code>NoSuchBucket</Code><Message>gone</Message>"),
         ObjectMissingError, "bucket does not exist"),
        (PermissionDeniedError("403: <Code>AccessDenied</Code><Message>no</Message>"),
         ObjectAccessError, "set the key"),
        (FileNotFoundError("404 <Code>XAdminUserNotFound</Code><Message>no</Message>"),
         ObjectAccessError, "set the key"),
        (UnauthenticatedError("401"), ObjectAccessError, "set the key"),
        (GenericError("416 Range <Code>InvalidRange</Code><Message>no</Message>"),
         ObjectDamagedError, "ends before"),
        (GenericError("HTTP error: error sending request\n\nDebug source: Generic {"),
         ObjectStoreError, "can't be reached"),
    ],
)  # fmt: skip
def test_a_services_answer_becomes_an_error_that_names_the_object(
    said: Exception, kind: type[ObjectStoreError], word: str
) -> None:
    error = answer_error(said, "ntpl+s3://bucket/zee", "cluster/3", "set the key")
    assert type(error) is kind
    assert "cluster/3" in str(error)
    assert word in str(error)
    assert "Debug" not in str(error)


def test_credentials_are_the_options_or_the_environments() -> None:
    amazon = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "t"}
    root = {"S3_ACCESS_KEY": "c", "S3_SECRET_KEY": "d", "S3_REGION": "cern"}
    none = (None, None, None, None)
    assert _s3({}, *none) == {"region": "us-east-1"}
    assert _s3({**amazon, **root}, *none) == {
        "access_key_id": "a", "secret_access_key": "b", "session_token": "t", "region": "cern"
    }  # fmt: skip
    assert _s3(root, *none)["secret_access_key"] == "d"
    assert _s3({**amazon, **root}, "k", "s", None, "r") == {
        "access_key_id": "k", "secret_access_key": "s", "region": "r"
    }  # fmt: skip


@pytest.mark.parametrize(
    "uri", ["ntpl+s3+http://host/bucket", "ntpl+s3://bucket", "ntpl+s3:///a/b"]
)
def test_a_cloud_uri_has_a_bucket_and_a_path(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="a bucket and a path"):
        open_store(uri)


def test_a_service_that_is_not_there() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        store = open_store(f"ntpl+s3+http://127.0.0.1:{port}/bucket/zee?retries=1")
        with pytest.raises(ObjectStoreError, match="can't be reached"):
            store.get("1")
