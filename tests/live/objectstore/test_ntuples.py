"""Whole ntuples in a real store whose objects, or answers, are damaged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
from tests.live.objectstore.faults import faulty_proxy
from tests.live.objectstore.servers import BUCKET, KEY, SECRET, Ceph, Gateway
from tests.live.objectstore.test_s3 import KEYS

from hepcache.errors import ObjectDamagedError, ObjectMissingError
from hepcache.objectstore import Store, open_store
from hepcache.rntuple import NTuple, WriteOptions, write_array
from hepcache.rntuple.maintenance import used_objects
from hepcache.rntuple.metadata import load_metadata


def hepcache(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hepcache", "objects", *arguments]


@pytest.fixture(params=["s3"])
def uri(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    server: Gateway | Ceph = request.getfixturevalue(
        {"s3": "gateway", "rados": "ceph"}[request.param]
    )
    return server.uri(f"{tmp_path.name}/events")


def same(store: Store, arrays: ak.Array) -> bool:
    with NTuple(store) as ntuple:
        return bool(ak.array_equal(ntuple.arrays(), arrays, dtype_exact=False))


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_object_is_named_and_never_data(uri: str, damage: str) -> None:
    store = open_store(uri)
    data = {"x": np.random.default_rng(7).normal(size=300_000)}
    write_array(store, "Events", data, WriteOptions(cluster_bytes=400_000))
    metadata = load_metadata(store)
    assert len(metadata.clusters) > 3
    pages = metadata.clusters[2].columns[0]
    name = metadata.name_of(int(pages.objects[0]))
    stored = bytearray(store.get(name))
    stored[int(pages.offsets[0]) + 100] ^= 1
    store.delete([name])
    if damage != "gone":
        store.put(name, stored[:50] if damage == "cut" else stored)
    done = subprocess.run(hepcache("verify", uri), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert name in done.stdout
    with pytest.raises(ObjectMissingError if damage == "gone" else ObjectDamagedError) as caught:
        NTuple(open_store(uri)).arrays()
    assert caught.value.name == name


def test_bits_that_change_on_the_way_are_never_data(gateway: Gateway, tmp_path: Path) -> None:
    with faulty_proxy(gateway.port) as proxy:
        uri = f"ntpl+s3+http://127.0.0.1:{proxy.port}/{BUCKET}/{tmp_path.name}/events"
        store = open_store(uri, **KEYS)
        data = {"x": np.random.default_rng(9).normal(size=200_000)}
        write_array(store, "Events", data)
        assert same(store, ak.Array(data))
        objects = used_objects(load_metadata(store))
        proxy.choose = lambda method, path, count: (
            "flip" if method == "GET" and path.rpartition("/")[2].isdecimal() else None
        )
        with pytest.raises(ObjectDamagedError) as caught:
            NTuple(store).arrays()
        assert caught.value.name in objects
