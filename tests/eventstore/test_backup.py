"""Backups of stores, and what is restored of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import StoreError
from hepcache.eventstore import Store, back_up, connect, restore
from hepcache.eventstore.shard import parts
from hepcache.eventstore.shard.parts import packed, unpacked
from hepcache.eventstore.shard.shard import LocalShard
from hepcache.objectstore import open_store

EVENTS = 3000


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several parts of small stores, whatever their keys are: keys hold random UUIDs."""
    monkeypatch.setattr(parts, "_LEAST_BYTES", 4 << 10)
    monkeypatch.setattr(parts, "_ENDS", 3)


def fill(store: Store, run: int, seed: int = 1) -> None:
    random = np.random.default_rng(seed)
    container = store.create("nova/prod5").create(run)
    for subrun in range(8):
        made = container.create(subrun)
        made.ingest("slice", np.arange(EVENTS), {"nhit": random.integers(0, 99, EVENTS)})
        made[subrun + 5]["note"] = f"run {run}"


def content(store: Store) -> list[list[tuple[bytes, bytes]]]:
    """Return all keys and values, by shard."""
    found = []
    for shard in store.shards:
        assert isinstance(shard, LocalShard)
        with shard.engine.read() as view:
            found.append([(key, bytes(value)) for key, value in view.scan(b"", None)])
    return found


def test_what_is_restored_is_what_was_there(store: Store, tmp_path: Path) -> None:
    fill(store, 43)
    calls: list[tuple[int, int]] = []
    made = back_up(store, str(tmp_path / "backup"), progress=lambda *call: calls.append(call))
    shards = len(store.shards)
    assert calls == [(done, shards) for done in range(1, shards + 1)]
    assert made.new_bytes == made.nbytes > 8 * EVENTS
    assert made.items == sum(map(len, content(store)))
    again = restore((tmp_path / "backup").as_uri(), tmp_path / "restored")
    assert (again.shards, again.items, again.nbytes) == (shards, made.items, made.nbytes)
    with connect(tmp_path / "restored") as restored:
        assert content(restored) == content(store)
        assert restored["nova/prod5"][43][3][8]["note"] == "run 43"
        fill(restored, 44)  # it can be written to


def test_only_what_has_changed_is_sent_again(tmp_path: Path) -> None:
    with connect("mem://?shards=3") as store:
        for run in range(6):
            fill(store, run, seed=run)
        first = back_up(store, str(tmp_path / "backup"))
        same = back_up(store, str(tmp_path / "backup"))
        assert (same.nbytes, same.new_bytes) == (first.nbytes, 0)
        store["nova/prod5"][2][1][7]["note"] = "changed"
        changed = back_up(store, str(tmp_path / "backup"))
        assert 0 < changed.new_bytes < first.nbytes / 4
        restore(str(tmp_path / "backup"), tmp_path / "restored")
        with connect(tmp_path / "restored") as restored:
            assert content(restored) == content(store)
    # What no backup needs any more is gone.
    objects = open_store(f"ntpl+file://{tmp_path / 'backup'}")
    assert sum(nbytes for _, nbytes in objects.list("parts/")) == changed.nbytes


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=300)),
        min_size=1,
        max_size=40,
    )
)
def test_parts_hold_what_was_packed(items: list[tuple[bytes, bytes]]) -> None:
    data = packed(items)  # type: ignore[arg-type]
    assert unpacked(data) == items
    for damaged in (data[:-1], data + b"x", data[:5]):
        with pytest.raises(StoreError, match="part"):
            unpacked(damaged)


def damage_part(objects: Any) -> None:
    name, _ = next(iter(objects.list("parts/")))
    data = bytearray(objects.get(name))
    data[len(data) // 2] ^= 1
    objects.put(name, bytes(data))


def remove_part(objects: Any) -> None:
    name, _ = next(iter(objects.list("parts/")))
    objects.delete([name])


def damage_manifest(objects: Any) -> None:
    objects.put("manifest", objects.get("manifest").replace(b'"format": 1', b'"format": 01'))


def other_format(objects: Any) -> None:
    body = json.loads(objects.get("manifest"))
    objects.put("manifest", json.dumps(body | {"format": 2}).encode())


def other_part(objects: Any) -> None:
    body = json.loads(objects.get("manifest"))
    body["shards"][0].pop()
    objects.put("manifest", json.dumps(body).encode())


def other_thing(objects: Any) -> None:
    objects.put("manifest", b'{"what": "a list of wines"}')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_part, "the part parts/.* is damaged"),
        (remove_part, "the part parts/.* is missing"),
        (damage_manifest, "manifest can't be read"),
        (other_format, "format 2, this hepcache reads 1"),
        (other_part, "manifest is damaged"),
        (other_thing, "manifest is of something else"),
        (lambda objects: objects.delete(["manifest"]), "there is no backup here"),
    ],
)
def test_nothing_is_restored_of_a_damaged_backup(
    damage: Callable[[Any], None], said: str, tmp_path: Path
) -> None:
    with connect("mem://?shards=2") as store:
        fill(store, 1)
        back_up(store, str(tmp_path / "backup"))
    damage(open_store(f"ntpl+file://{tmp_path / 'backup'}"))
    with pytest.raises(StoreError, match=said):
        restore(str(tmp_path / "backup"), tmp_path / "restored")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with connect("mem://") as store:
        back_up(store, str(tmp_path / "backup"))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="new or an empty directory"):
        restore(str(tmp_path / "backup"), tmp_path / "used")
    (tmp_path / "empty").mkdir()
    restore(str(tmp_path / "backup"), tmp_path / "empty")
    with connect(tmp_path / "empty") as restored:
        assert list(restored) == []


def test_of_two_backups_at_once_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "backup")
    with connect("mem://") as first, connect("mem://") as second:
        fill(first, 1)
        fill(second, 2)
        upload = parts.upload

        def slow(*arguments: Any) -> Any:
            found = upload(*arguments)
            monkeypatch.undo()
            back_up(second, place)  # it is faster
            return found

        monkeypatch.setattr("hepcache.eventstore.backup.upload", slow)
        with pytest.raises(StoreError, match="another backup was made here meanwhile"):
            back_up(first, place)
        restore(place, tmp_path / "restored")
        with connect(tmp_path / "restored") as restored:
            assert content(restored) == content(second)


def back_up_again_and_again(url: str, place: str, ready: Path, first: int = 10) -> None:
    with connect(url) as store:
        for run in range(first, first + 100):
            fill(store, run, seed=run)
            ready.touch()
            back_up(store, place)


@pytest.mark.slow
def test_a_killed_backup_leaves_the_last_one_whole(tmp_path: Path) -> None:
    url, place = str(tmp_path / "store"), str(tmp_path / "backup")
    with connect(f"file://{url}?sync=false&shards=2") as store:
        fill(store, 999)
        back_up(store, place)
    context = multiprocessing.get_context("spawn")
    for number in range(3):
        ready = tmp_path / f"ready-{number}"
        arguments = url, place, ready, 1000 * (number + 1)
        process = context.Process(target=back_up_again_and_again, args=arguments)
        process.start()
        while not ready.exists():
            time.sleep(0.01)
        time.sleep(0.05 + 0.13 * number)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        restore(place, tmp_path / f"restored-{number}")
        with connect(tmp_path / f"restored-{number}") as restored:
            dataset = restored["nova/prod5"]
            assert 999 in list(dataset)
            for run in dataset:
                # A subrun is made, and then filled at once.
                counts = {len(list(dataset[run][subrun])) for subrun in dataset[run]}
                assert counts <= {0, EVENTS}


@pytest.mark.slow
def test_a_store_is_backed_up_while_others_write(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path / 'store'}?sync=false") as store:
        fill(store, 1)
        context = multiprocessing.get_context("spawn")
        ready = tmp_path / "ready"
        writer = context.Process(
            target=back_up_again_and_again,
            args=(str(tmp_path / "store"), str(tmp_path / "other"), ready),
        )
        writer.start()
        try:
            while not ready.exists():
                time.sleep(0.01)
            for number in range(4):
                back_up(store, str(tmp_path / "backup"))
                restore(str(tmp_path / "backup"), tmp_path / f"restored-{number}")  # verifies
        finally:
            writer.kill()
            writer.join()


def test_the_places_that_users_write(tmp_path: Path) -> None:
    from hepcache.errors import ConfigurationError

    with connect("mem://") as store, pytest.raises(ConfigurationError, match="s3://"):
        back_up(store, "ftp://host/x")
