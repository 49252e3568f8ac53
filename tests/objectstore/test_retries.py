"""Every kind of request to S3 is tried again after every kind of failure that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.objectstore.bucket import FAILURES, Bucket, failing_bucket

from hepcache.errors import ObjectStoreError
from hepcache.objectstore import Store, open_store
from hepcache.objectstore import cloud as cloud_module

WORDS = b"what is stored " * 20


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with failing_bucket() as found:
        yield found


def _put(store: Store) -> None:
    store.put("new", WORDS)
    assert store.get("new") == WORDS


def _put_in_parts(store: Store) -> None:
    store.put("large", WORDS * 20_000)  # 6 MB in parts of 5
    assert store.get("large") == WORDS * 20_000


def _create(store: Store) -> None:
    assert store.put_anchor_if("anchor", WORDS, None)
    assert store.get("anchor") == WORDS


def _replace(store: Store) -> None:
    assert store.put_anchor_if("there", b"newer", WORDS)
    assert store.get("there") == b"newer"


def _get(store: Store) -> None:
    assert store.get("there") == WORDS


def _ranges(store: Store) -> None:
    found = store.get_ranges("there", [0, 20, 100], [10, 30, 50])
    assert [bytes(part) for part in found] == [WORDS[:10], WORDS[20:50], WORDS[100:150]]


def _list(store: Store) -> None:
    assert sorted(store.list()) == [("there", len(WORDS)), ("too", len(WORDS))]


def _delete(store: Store) -> None:
    store.delete(["there", "too"])
    assert list(store.list()) == []


REQUESTS: dict[str, tuple[str, Callable[[Store], None]]] = {
    "put": ("put", _put),
    "begin of parts": ("uploads", _put_in_parts),
    "part": ("part", _put_in_parts),
    "end of parts": ("uploadId", _put_in_parts),
    "create": ("conditional put", _create),
    "replace": ("conditional put", _replace),
    "get": ("get", _get),
    "range": ("range", _ranges),
    "list": ("list", _list),
    "delete": ("delete", _delete),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("request_kind", REQUESTS)
def test_a_request_that_fails_is_sent_again(
    request_kind: str, failure: str, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, act = REQUESTS[request_kind]
    monkeypatch.setattr(cloud_module, "_WHOLE_BYTES", 5 << 20)
    monkeypatch.setattr(cloud_module, "_PART_BYTES", 5 << 20)
    bucket.objects = {"base/there": WORDS, "base/too": WORDS}
    bucket.uploads.clear()
    bucket.failed = 0
    bucket.fault = kind, failure
    store = open_store(f"{bucket.uri}?access_key=a&secret_key=b")
    act(store)
    assert bucket.failed  # the end of half an answer is asked for as a range


def test_what_fails_for_ever_is_named(bucket: Bucket) -> None:
    bucket.objects = {"base/there": WORDS}
    bucket.failed = 0
    bucket.fault = "get", "slow down"
    bucket.times = 1 << 30
    try:
        store = open_store(f"{bucket.uri}?access_key=a&secret_key=b&retries=2")
        with pytest.raises(ObjectStoreError, match="SlowDown"):
            store.get("there")
    finally:
        bucket.times = 2
