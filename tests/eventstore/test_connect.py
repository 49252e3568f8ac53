"""Stores by their URLs."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import psutil
import pytest

from hepcache.errors import ConfigurationError
from hepcache.eventstore import connect


def test_a_store_on_disk_lasts(tmp_path: Path) -> None:
    url = (tmp_path / "s").as_uri()
    with connect(f"{url}?shards=3") as store:
        store.create("nova/prod5").create(43).create(56).ingest("v", [1], {"a": np.array([5])})
    with connect(url) as store:
        assert len(store.shards) == 3
        assert store["nova/prod5"][43][56][1]["v"]["a"] == 5
        assert store.verify() > 0
    with pytest.raises(ConfigurationError, match="3"):
        connect(f"{url}?shards=4")


def test_a_store_is_opened_again_where_it_is_sent(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        store.create("nova").create(1).create(2).create(3)["v"] = b"1"
        with pickle.loads(pickle.dumps(store)) as sent:
            assert sent.url == store.url
            assert sent["nova"][1][2][3]["v"] == b"1"
    with connect("mem://") as store, pytest.raises(ConfigurationError, match="other processes"):
        pickle.dumps(store)


def test_a_store_of_many_shards(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/store?shards=100&sync=false") as store:
        run = store.create("nova").create(1)
        for number in range(300):
            run.create(number).create(7)
        there = {store.number_of_shard(run[number].key) for number in range(300)}
        assert len(there) > 80
        assert list(run) == list(range(300))
        with connect(f"file://{tmp_path}/other?shards=100&sync=false") as other:
            other.create("nova").create(1).create(2).create(3)
            # The rest of the process has addresses left, of 128 TiB.
            assert psutil.Process().memory_info().vms < 96 << 40
