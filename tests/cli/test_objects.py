from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import uproot
from tests.cli.conftest import Hepcache
from tests.rntuple.stopping import held_put

from hepcache.errors import ObjectConflictError
from hepcache.objectstore import open_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.root"
    with uproot.recreate(path) as file:
        file.mkrntuple("Events", {"x": np.arange(1000.0), "n": np.arange(1000)})
    return path


def test_there_and_back(hepcache: Hepcache, file: Path, tmp_path: Path) -> None:
    uri = f"ntpl+file://{tmp_path}/store/events"
    code, out, err = hepcache("objects", "put", file, uri)
    assert (code, err.strip()) == (0, "")
    assert "Events: 1,000 entries, 1 clusters copied" in out
    code, out, _ = hepcache("objects", "ls", uri, "--fields")
    assert code == 0
    assert all(word in out for word in ("1,000", "cluster", "${baseurl}.pages/put-", "\nx\n"))
    assert hepcache("objects", "verify", uri)[0] == 0
    assert hepcache("objects", "get", uri, tmp_path / "back.root")[0] == 0
    with uproot.open(tmp_path / "back.root") as back:
        assert back["Events"].arrays()["n"].tolist() == list(range(1000))
    code, _, err = hepcache("objects", "get", uri, tmp_path / "back.root")
    assert (code, "--overwrite" in err) == (2, True)
    store = open_store(uri)
    store.put(".pages/77", b"left by a killed put")
    code, out, _ = hepcache("objects", "verify", uri)
    assert (code, "1 objects" in out, "rm --orphans" in out) == (0, True, True)
    assert "1 objects removed" in hepcache("objects", "rm", uri, "--orphans", "--yes")[1]
    assert hepcache("objects", "verify", uri)[0] == 0
    assert "objects removed" in hepcache("objects", "rm", uri, "--yes")[1]
    assert dict(store.list()) | dict(store.list(".pages/")) == {}
    code, _, err = hepcache("objects", "ls", uri)
    assert (code, "there is no such object" in err, uri in err) == (1, True, True)


def test_two_puts_at_once(hepcache: Hepcache, file: Path, tmp_path: Path) -> None:
    uri = f"ntpl+file://{tmp_path}/store/events"
    other = tmp_path / "other.root"
    with uproot.recreate(other) as made:
        made.mkrntuple("Events", {"x": np.arange(9.0), "n": np.arange(9)})
    with held_put(open_store(uri), other, after=1) as late:
        assert hepcache("objects", "put", file, uri)[0] == 0
    with pytest.raises(ObjectConflictError):
        late.result()
    code, out, _ = hepcache("objects", "verify", uri)
    assert (code, "1,000" in out, "orphan" in out) == (0, True, False), out


def test_damage_is_told(hepcache: Hepcache, file: Path, tmp_path: Path) -> None:
    uri = f"ntpl+file://{tmp_path}/store/events"
    hepcache("objects", "put", file, uri, "--mapping", "page")
    store = open_store(uri)
    name = max(store.list(".pages/"), key=lambda one: one[1])[0]
    store.put(name, b"short")
    code, out, _ = hepcache("objects", "verify", uri)
    assert (code, "damaged" in out, name in out) == (1, True, True)


def test_a_tree_needs_convert(hepcache: Hepcache, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "tree.root") as file:
        file.mktree("Events", {"x": "f8"})
        file["Events"].extend({"x": np.arange(50.0)})
    uri = f"ntpl+file://{tmp_path}/store/events"
    code, _, err = hepcache("objects", "put", tmp_path / "tree.root", uri)
    assert (code, "--convert" in err) == (2, True)
    code, out, _ = hepcache("objects", "put", tmp_path / "tree.root", uri, "--convert")
    assert (code, "50 entries, converted" in out) == (0, True)


def test_a_wrong_uri_is_an_argument_error(hepcache: Hepcache) -> None:
    code, _, err = hepcache("objects", "ls", "s3://bucket/key")
    assert (code, "ntpl+s3" in err) == (2, True)
