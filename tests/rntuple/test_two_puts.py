"""Two puts of one name at once: one wins, the other is told, and the ntuple is whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import obstore.store
import pytest
from tests.rntuple.rounds import numbers_in, play, write_numbers
from tests.rntuple.stopping import StoppingStore, Stops, held_put

from hepcache.errors import ObjectConflictError
from hepcache.objectstore import Store, open_store
from hepcache.objectstore.cloud import CloudStore
from hepcache.rntuple import Sink, WriteOptions, put_files, verify
from hepcache.rntuple.maintenance import used_objects
from hepcache.rntuple.metadata import load_metadata


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_numbers(tmp_path_factory.mktemp("numbers"), 3)


@pytest.fixture(params=["memory", "directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        service = obstore.store.MemoryStore()
        return CloudStore("ntpl+s3://bucket/zee", service, "zee", 8, "set the key")
    kind = "mem" if request.param == "memory" else "file"
    return open_store(f"ntpl+{kind}://{tmp_path}/zee")


@pytest.mark.parametrize("before", [False, True])
def test_who_comes_late_is_told_and_leaves_nothing(
    store: Store, numbers: list[Path], before: bool
) -> None:
    if before:
        put_files(store, numbers[2:])
        assert numbers_in(store) == {2}
    with held_put(store, numbers[0]) as late:
        put_files(store, numbers[1:2])
        assert numbers_in(store) == {1}
    with pytest.raises(ObjectConflictError, match="another put has published here meanwhile"):
        late.result()
    assert numbers_in(store) == {1}
    verdict = verify(store)
    assert (verdict.problems, verdict.unfinished) == ({}, False)
    left = {name for name, _ in verdict.orphans}
    assert len({name.rpartition("/")[0] for name in left}) == before  # of what was replaced
    put_files(store, numbers[:1])
    assert numbers_in(store) == {0}


def test_two_puts_of_the_same_files(store: Store, numbers: list[Path]) -> None:
    with held_put(store, numbers[0]) as first:
        put_files(store, numbers[:1], options=WriteOptions(puts=1))
        assert numbers_in(store) == {0}
    assert first.result().entries == 30_000
    assert numbers_in(store) == {0}
    verdict = verify(store)
    assert (verdict.problems, verdict.orphans) == ({}, ())


def test_a_put_that_was_taken_over_ends(store: Store, numbers: list[Path]) -> None:
    with held_put(store, numbers[0]) as first:
        with pytest.raises(Stops):
            put_files(StoppingStore(store, 1), numbers[:1], options=WriteOptions(puts=1))
        put_files(store, numbers[1:2])
    with pytest.raises(ObjectConflictError):
        first.result()
    assert numbers_in(store) == {1}
    assert verify(store).problems == {}


@pytest.mark.parametrize("change", ["cut", "gone"])
def test_putting_again_heals_in_place(store: Store, numbers: list[Path], change: str) -> None:
    put_files(store, numbers[:1])
    metadata = load_metadata(store)
    there = used_objects(metadata)
    name = metadata.name_of(int(metadata.clusters[0].columns[1].objects[0]))
    data = store.get(name)
    store.delete([name])
    if change == "cut":
        store.put(name, data[:-9])
    assert list(verify(store).problems) == [name]
    put_files(store, numbers[:1])
    verdict = verify(store)
    assert (verdict.problems, verdict.orphans) == ({}, ())
    assert used_objects(load_metadata(store)) == there
    assert numbers_in(store) == {0}


def test_writers_of_arrays_meet(store: Store) -> None:
    sinks = [Sink(store, "Events") for _ in range(2)]
    for number, sink in enumerate(sinks):
        sink.extend({"x": np.full(10, number)})
    sinks[1].close()
    with pytest.raises(ObjectConflictError):
        sinks[0].close()
    verdict = verify(store)
    assert (verdict.entries, verdict.problems, verdict.orphans) == (10, {}, ())


def test_rounds_of_two_puts_with_kills(tmp_path: Path, numbers: list[Path]) -> None:
    outcomes = play(f"ntpl+file://{tmp_path}/zee", numbers, 12, 0.2)
    assert outcomes["won"] >= 8
