"""Event stores that are copied to real object stores, and come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.live.objectstore.servers import KEY, SECRET, Ceph, Gateway

from hepcache.errors import StoreError
from hepcache.eventstore import back_up, connect, restore

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["s3", "rados"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where a backup goes to, as a user writes it."""
    if request.param == "s3":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        gateway: Gateway = request.getfixturevalue("gateway")
        return gateway.uri(f"backups/{tmp_path.name}").removeprefix("ntpl+")
    ceph: Ceph = request.getfixturevalue("ceph")
    return ceph.uri(f"backups-{tmp_path.name}")


def test_a_store_comes_back(place: str, tmp_path: Path) -> None:
    values = np.random.default_rng(1).random((4, 500_000))
    with connect(f"file://{tmp_path / 'store'}?shards=3") as store:
        run = store.create("nova").create(1)
        for subrun, energies in enumerate(values):
            run.create(subrun).ingest("hit", np.arange(len(energies)), {"energy": energies})
        first = back_up(store, place)
        assert first.new_bytes == first.nbytes > values.nbytes
        run[2][7]["note"] = "seen"
        assert back_up(store, place).new_bytes < values.nbytes
    restore(place, tmp_path / "restored")
    with connect(tmp_path / "restored") as restored:
        run = restored["nova"][1]
        for subrun, energies in enumerate(values):
            assert np.array_equal(run[subrun].read("hit").columns["energy"], energies)
        assert run[2][7]["note"] == "seen"
    with pytest.raises(StoreError, match="there is no backup here"):
        restore(place.replace("backups", "others"), tmp_path / "nothing")
