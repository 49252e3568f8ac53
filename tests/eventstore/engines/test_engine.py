"""The contract of every engine, and what is remembered of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import StoreError
from hepcache.eventstore.engines.engine import Engine, MemoryEngine, SnapshotIndex
from hepcache.eventstore.engines.lmdb import LmdbEngine

KEYS = st.binary(min_size=1, max_size=3)
WRITES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=40)


@pytest.fixture(params=["memory", "lmdb"])
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Engine]]:
    made: list[Engine] = []

    def engine() -> Engine:
        one = (
            MemoryEngine()
            if request.param == "memory"
            else LmdbEngine(tmp_path_factory.mktemp("engine"), sync=False)
        )
        made.append(one)
        return one

    yield engine
    for one in made:
        one.close()


def test_it_is_an_ordered_dictionary(make: Callable[[], Engine]) -> None:
    engine = make()
    known: dict[bytes, bytes] = {}

    @given(WRITES, KEYS, KEYS)
    def agrees(writes: list[tuple[bytes, bytes | None]], low: bytes, high: bytes) -> None:
        with engine.write() as view:
            for key, value in writes:
                if value is None:
                    view.delete(key)
                    known.pop(key, None)
                else:
                    view.put(key, value)
                    known[key] = value
        wanted = sorted((key, value) for key, value in known.items() if low <= key < high)
        with engine.read() as view:
            found = [(key, bytes(value)) for key, value in view.scan(low, high)]
            back = [(key, bytes(value)) for key, value in view.scan(low, high, reverse=True)]
            every = [key for key, _ in view.scan(b"", None)]
            last = [key for key, _ in view.scan(low, None, reverse=True)]
            floor = view.floor(high, low)
            value = view.get(low)
        assert found == wanted
        assert back == wanted[::-1]
        assert every == sorted(known)
        assert last == sorted((key for key in known if key >= low), reverse=True)
        below = [key for key in sorted(known) if low <= key <= high]
        assert (None if floor is None else floor[0]) == (below[-1] if below else None)
        assert (None if value is None else bytes(value)) == known.get(low)

    agrees()
    assert engine.info()["keys"] == len(known)


def test_a_failed_write_leaves_nothing(make: Callable[[], Engine]) -> None:
    engine = make()
    with engine.write() as view:
        view.put(b"a", b"1")
        view.put(b"b", b"2")

    def fail() -> None:
        with engine.write() as view:
            view.put(b"a", b"3")
            view.put(b"c", b"4")
            view.put(b"c", b"5")
            view.delete(b"b")
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    with engine.read() as view:
        assert [(key, bytes(value)) for key, value in view.scan(b"", None)] == [
            (b"a", b"1"),
            (b"b", b"2"),
        ]


def test_two_stores_of_a_process_share_an_environment(tmp_path: Path) -> None:
    one, other = LmdbEngine(tmp_path), LmdbEngine(tmp_path)
    with one.write() as view:
        view.put(b"k", b"v")
    one.close()
    one.close()
    with other.read() as view:
        value = view.get(b"k")
        assert value is not None
        assert bytes(value) == b"v"
    other.close()


def test_a_directory_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        LmdbEngine(tmp_path / "file")


class Span:
    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last


@given(st.sets(st.integers(0, 40)), st.permutations(range(10)), st.integers(0, 45))
def test_a_span_is_found_by_its_numbers(gaps: set[int], order: list[int], number: int) -> None:
    spans = [Span(4 * one, 4 * one + 3 - (one in gaps)) for one in order]
    kept = SnapshotIndex()
    for one in (*spans, *spans[:3]):
        kept.add(b"a", one, 1)
    wanted = [one for one in spans if one.first <= number <= one.last]
    assert kept.find(b"a", number) is (wanted[0] if wanted else None)
    assert kept.find(b"b", number) is None


def test_the_index_of_a_snapshot_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hepcache.eventstore.engines.engine._MOST_VALUES", 10)
    kept = SnapshotIndex()
    for one in range(7):
        kept.add(b"a", Span(one, one), 2)
    assert [one for one in range(7) if kept.find(b"a", one)] == [5, 6]
