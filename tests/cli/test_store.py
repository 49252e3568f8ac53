"""``hepcache store`` on an embedded store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.errors import StoreError
from hepcache.eventstore import connect


@pytest.fixture
def path(tmp_path: Path) -> str:
    with connect(tmp_path / "s") as store:
        subrun = store.create("nova/prod5").create(43).create(56)
        subrun.ingest("slice", [3, 7], {"nhit": np.array([1, 2])})
        subrun.products["pot"] = np.float64(1.5)
    return str(tmp_path / "s")


def lines(*arguments: str) -> list[str]:
    found = CliRunner().invoke(app, ["store", *arguments], catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout.splitlines()


def test_ls_goes_down_to_products(path: str) -> None:
    assert lines("ls", path) == ["nova/"]
    assert lines("ls", path, "nova") == ["prod5/"]
    assert lines("ls", path, "nova/prod5") == ["43"]
    assert lines("ls", path, "nova/prod5:43") == ["56"]
    assert lines("ls", path, "nova/prod5:43/56") == [
        "events' product slice: awkward {nhit: int64}",
        "product pot: numpy float64",
        "3",
        "7",
    ]
    assert lines("ls", path, "nova/prod5:43/56/7") == ["product slice: awkward {nhit: int64}"]


def test_info_and_verify(path: str) -> None:
    (shard,) = json.loads(lines("info", path, "--json")[0])["shards"]
    assert shard["engine"] == "lmdb"
    assert lines("info", path)[-1].startswith("1 shards")
    assert lines("verify", path) == ["4 values are whole"]


def test_a_directory_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no event store"):
        CliRunner().invoke(app, ["store", "ls", str(tmp_path)], catch_exceptions=False)
    assert not list(tmp_path.iterdir())
