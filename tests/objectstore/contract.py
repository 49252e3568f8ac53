"""What every store must do; each store's test derives from it and gives one to test."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hepcache.errors import (
    ConfigurationError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.objectstore import Request, Store

BIG = bytes(np.random.default_rng(0).bytes(3_000_000))


class StoreContract:
    """Derive, and make a fixture ``store`` that is empty and alone in its place.

    ``is_atomic`` tells whether a store compares and writes in one step.
    """

    is_atomic = True

    def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert store.limit > len(BIG)
        assert "://" in store.uri

    def test_what_is_put_is_got(self, store: Store) -> None:
        for data in (b"", b"x", BIG, bytearray(b"abc"), memoryview(b"xabcx")[1:4]):
            store.put("objects/one", data)
            assert store.get("objects/one") == bytes(data)
        store.put("12", np.arange(5, dtype="<i8"))
        assert store.get("12") == np.arange(5, dtype="<i8").tobytes()

    def test_an_anchor_replaces_another_whole(self, store: Store) -> None:
        store.put("1", b"data")
        store.put_anchor("anchor", b"a longer anchor")
        store.put_anchor("anchor", b"short")
        assert store.get("anchor") == b"short"

    def test_one_of_many_who_expect_the_same_replaces_it(self, store: Store) -> None:
        assert store.put_anchor_if("anchor", b"0", None)
        assert not store.put_anchor_if("anchor", b"x", None)
        assert not store.put_anchor_if("anchor", b"x", b"other")
        assert not store.put_anchor_if("other", b"x", b"0")
        assert store.get("anchor") == b"0"
        assert store.content("other") is None
        many = 4 if self.is_atomic else 1
        with ThreadPoolExecutor(many) as pool:
            for turn in range(5):
                before = store.get("anchor")
                wanted = [f"turn {turn} of {number}".encode() for number in range(many)]
                tries = [
                    pool.submit(store.put_anchor_if, "anchor", data, before) for data in wanted
                ]
                won = [data for data, done in zip(wanted, tries, strict=True) if done.result()]
                assert won == [store.get("anchor")]
        assert dict(store.list()) == {"anchor": 11}

    def test_names_stand_at_below_and_beside_the_uri(self, store: Store) -> None:
        objects = {"3": b"c", "cluster/4": b"dd", ".pages/5": b"eee", ".pages/6/7": b"ffff"}
        for name, data in objects.items():
            store.put(name, data)
        store.put_anchor("anchor", b"anchor")
        for name, data in objects.items():
            assert store.get(name) == data
        assert dict(store.list()) == {"3": 1, "cluster/4": 2, "anchor": 6}
        assert dict(store.list("cluster/")) == {"cluster/4": 2}
        assert dict(store.list(".pages/")) == {".pages/5": 3, ".pages/6/7": 4}
        assert dict(store.list("nothing/")) == {}

    def test_the_uri_itself_can_be_an_object(self, store: Store) -> None:
        store.put(".pages/1", b"page")
        store.put_anchor("", b"anchor")
        assert store.get("") == b"anchor"
        assert dict(store.list()) == {"": 6}
        store.delete([""])
        assert dict(store.list()) == {}
        assert store.get(".pages/1") == b"page"

    def test_ranges(self, store: Store) -> None:
        store.put("big", BIG)
        starts, lengths = [0, 100, 2_999_999, 5, 1_000_000], [10, 50_000, 1, 0, 2_000_000]
        found = store.get_ranges("big", starts, lengths)
        assert [bytes(data) for data in found] == [
            BIG[start : start + length] for start, length in zip(starts, lengths, strict=True)
        ]
        assert np.frombuffer(found[1], np.uint8).size == 50_000
        assert store.get_ranges("big", [], []) == []

    def test_ranges_of_many_objects(self, store: Store) -> None:
        for number in range(20):
            store.put(f"{number}", BIG[number : number + 5000])
        draw = np.random.default_rng(1)
        requests = [
            Request(str(draw.integers(20)), int(draw.integers(4000)), int(draw.integers(1000)))
            for _ in range(300)
        ]
        found = store.begin(requests).result()
        for (name, start, length), data in zip(requests, found, strict=True):
            assert bytes(data) == BIG[int(name) + start :][:length]
        assert store.begin([]).result() == []
        assert list(map(bytes, store.begin(requests).result())) == list(map(bytes, found))
        with pytest.raises(ObjectMissingError):
            store.begin([Request("1", 0, 1), Request("gone", 0, 1)]).result()
        store.begin(requests).cancel()

    def test_vector_reads_from_many_threads(self, store: Store) -> None:
        store.put("big", BIG)
        barrier = threading.Barrier(4)

        def read(number: int) -> bool:
            barrier.wait(timeout=60)
            requests = [Request("big", number * 1000 + first, 100) for first in range(50)]
            found = store.begin(requests).result()
            return all(
                bytes(data) == BIG[start : start + length]
                for (_, start, length), data in zip(requests, found, strict=True)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(4)))

    def test_a_truncated_object_is_never_given_for_whole(self, store: Store) -> None:
        store.put("short", b"0123456789")
        for start, length in ((5, 6), (10, 1), (20, 5)):
            with pytest.raises(ObjectDamagedError) as caught:
                store.get_ranges("short", [0, start], [2, length])
            assert caught.value.name == "short"
            assert caught.value.store == store.uri
            requests = [Request("short", 0, 2), Request("short", start, length)]
            with pytest.raises(ObjectDamagedError):
                store.begin(requests).result()

    def test_a_missing_object_is_named(self, store: Store) -> None:
        store.put("there", b"x")
        for call in (
            lambda: store.get("gone"),
            lambda: store.get_ranges("gone", [0], [1]),
            lambda: store.begin([Request("there", 0, 1), Request("gone", 0, 1)]).result(),
        ):
            with pytest.raises(ObjectMissingError) as caught:
                call()
            assert isinstance(caught.value, FileNotFoundError)
            assert (caught.value.store, caught.value.name) == (store.uri, "gone")
            assert "gone" in str(caught.value)

    def test_delete(self, store: Store) -> None:
        for name in ("1", "2", "a/3", ".pages/4"):
            store.put(name, b"x")
        store.delete(["1", "a/3", ".pages/4", "never-there"])
        assert dict(store.list()) == {"2": 1}
        assert dict(store.list(".pages/")) == {}
        store.delete([])
        with pytest.raises(ObjectStoreError):
            store.get("1")
        store.put("a/3", b"again")
        assert store.get("a/3") == b"again"

    @pytest.mark.parametrize(
        "name", ["/etc/passwd", "../up", "a/../../b", "a//b", "a/", ".", "a/."]
    )
    def test_names_can_not_leave_their_place(self, store: Store, name: str) -> None:
        with pytest.raises(ConfigurationError):
            store.put(name, b"x")
        with pytest.raises(ConfigurationError):
            store.get(name)
        with pytest.raises(ConfigurationError):
            store.delete([name])

    def test_a_prefix_ends_in_a_slash(self, store: Store) -> None:
        for prefix in ("a", "../", "/"):
            with pytest.raises(ConfigurationError):
                list(store.list(prefix))
