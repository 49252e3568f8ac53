"""Objects in S3 and its like, against obstore's own service in memory."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

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
from hepcache.objectstore import Store, open_store
from hepcache.objectstore.cloud import CloudStore, _s3_config, answer_error


class TestCloud(StoreContract):
    """Against obstore's own service in memory; S3 itself is tests/live/objectstore's part."""

    @pytest.fixture
    def store(self) -> Store:
        return CloudStore("ntpl+s3://bucket/run3/zee", MemoryStore(), "run3/zee", 8, "set the key")


@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        (
            FileNotFoundError("404: <Code>NoSuchKey</Code><Message>gone</Message>"),
            ObjectMissingError,
            "no such object",
        ),
        (
            FileNotFoundError("404: <Code>NoSuchBucket</Code><Message>gone</Message>"),
            ObjectMissingError,
            "bucket does not exist",
        ),
        (
            PermissionDeniedError("403: <Code>AccessDenied</Code><Message>no</Message>"),
            ObjectAccessError,
            "set the key",
        ),
        (
            FileNotFoundError("404 <Code>XAdminUserNotFound</Code><Message>no</Message>"),
            ObjectAccessError,
            "set the key",
        ),
        (UnauthenticatedError("401"), ObjectAccessError, "set the key"),
        (
            GenericError("416 Range <Code>InvalidRange</Code><Message>no</Message>"),
            ObjectDamagedError,
            "ends before",
        ),
        (
            GenericError("HTTP error: error sending request\n\nDebug source: Generic {"),
            ObjectStoreError,
            "can't be reached",
        ),
    ],
)
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
    assert _s3_config({}, *none) == {"region": "us-east-1"}
    assert _s3_config({**amazon, **root}, *none) == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "session_token": "t",
        "region": "cern",
    }
    assert _s3_config(root, *none)["secret_access_key"] == "d"
    assert _s3_config({**amazon, **root}, "k", "s", None, "r") == {
        "access_key_id": "k",
        "secret_access_key": "s",
        "region": "r",
    }


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


_LISTING = (
    "<ListBucketResult><Name>b</Name><IsTruncated>{more}</IsTruncated>{token}{items}"
    "</ListBucketResult>"
)
_ITEM = (
    "<Contents><Key>zee/{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
    "<Size>5</Size></Contents>"
)


class BreakingLists(BaseHTTPRequestHandler):
    """Lists two pages; the second one breaks off as often as the server says."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        second = bool(re.search("continuation-token=", self.path))
        items = "".join(_ITEM.format(name=name) for name in ((3, 4) if second else (1, 2)))
        token = "" if second else "<NextContinuationToken>t</NextContinuationToken>"
        more = "false" if second else "true"
        body = _LISTING.format(more=more, token=token, items=items).encode()
        declared = len(body)
        if second and self.server.failures:
            self.server.failures -= 1
            body = body[: len(body) // 2]
            declared = len(body) if self.server.whole else declared
        self.send_response(200)
        self.send_header("Content-Length", str(declared))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = len(body) < declared


@pytest.fixture
def breaking() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), BreakingLists) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("whole", [True, False], ids=["half a document", "half an answer"])
def test_a_listing_that_breaks_off_is_asked_for_again(breaking: Any, whole: bool) -> None:
    breaking.failures, breaking.whole = 2, whole
    uri = f"ntpl+s3+http://127.0.0.1:{breaking.server_port}/b/zee?retries="
    assert list(open_store(f"{uri}3").list()) == [(name, 5) for name in "1234"]
    breaking.failures = 5
    with pytest.raises(ObjectStoreError):
        list(open_store(f"{uri}1").list())
