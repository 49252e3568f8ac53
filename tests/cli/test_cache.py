from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Hepcache

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.inventory import columns
from hepcache.cache.provenance import Origin, note_origin, origin_of


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    cache = ColumnCache(tmp_path / "hosts" / "host-0", capacity_bytes=1 << 30, codec="raw")
    for uuid, dataset in (("aa", "DY"), ("bb", "TT"), ("cc", None)):
        for number, name in enumerate(("nJet", "Jet_pt", "Jet_eta")):
            values = np.arange(10_000 * (number + 1), dtype=np.float32)
            assert cache.put(ColumnKey(uuid, "tag", "Events", 0, 100, name), Entry(b"", (values,)))
        if dataset:
            note_origin(cache, uuid, "tag", Origin(f"/data/{dataset}.root", (dataset,)))
    cache.close()
    return tmp_path / "hosts"


def test_a_content_may_be_of_several_datasets(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "c", capacity_bytes=1 << 20)
    assert origin_of(cache, "aa", "tag") is None
    note_origin(cache, "aa", "tag", Origin("/old.root", ("DY",)))
    note_origin(cache, "aa", "tag", Origin("/new.root", ("all",)))
    assert origin_of(cache, "aa", "tag") == Origin("/new.root", ("DY", "all"))


def test_info_tells_what_occupies_the_room(filled: Path, hepcache: Hepcache) -> None:
    code, out, _ = hepcache("cache", "info", "--directory", filled, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 0
    assert found["directory"] == str(filled / "host-0")
    assert (found["columns"], found["contents"], found["quarantined"]) == (9, 3, 0)
    assert set(found["by_dataset"]) == {"DY", "TT", "cc"}
    assert list(found["by_column"]) == ["Jet_eta", "Jet_pt", "nJet"]
    assert sum(nbytes for _, nbytes in found["by_column"].values()) == found["used_bytes"]
    code, out, _ = hepcache("cache", "info", "--directory", filled)
    assert code == 0
    assert "host-0" in out
    assert "Jet_eta" in out


def test_ls_selects_and_sorts(filled: Path, hepcache: Hepcache) -> None:
    arguments = ("cache", "ls", "--directory", filled, "--json")
    _, out, _ = hepcache(*arguments, "--dataset", "D*", "--column", "Jet_*")
    found = json.loads(out)["columns"]
    assert [(one["dataset"], one["column"]) for one in found] == [
        ("DY", "Jet_eta"),
        ("DY", "Jet_pt"),
    ]
    _, out, _ = hepcache(*arguments, "--file", "*/TT.root", "--limit", "1", "--sort", "name")
    found = json.loads(out)
    assert (len(found["columns"]), found["all"]) == (1, 3)
    code, out, _ = hepcache("cache", "ls", "--directory", filled)
    assert (code, out.count("Jet_pt")) == (0, 3)
    assert hepcache(*arguments, "--sort", "colour")[0] == 2


def test_verify_finds_a_flipped_byte(filled: Path, hepcache: Hepcache) -> None:
    arguments = ("cache", "verify", "--directory", filled)
    code, out, _ = hepcache(*arguments)
    assert code == 0
    assert f"{filled / 'host-0'}: 9 columns sound" in out
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    victim = Path(next(columns(cache.layout)).path)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    code, out, _ = hepcache(*arguments, "--json")
    (found,) = json.loads(out).values()
    assert code == 1
    assert (found["sound"], found["damaged"]) == (8, [str(victim)])
    assert not victim.exists()
    _, out, _ = hepcache("cache", "info", "--directory", filled, "--json")
    assert json.loads(out)["caches"][0]["quarantined"] == 1
    assert hepcache("cache", "clear", "--quarantine", "--yes", "--directory", filled)[0] == 0
    assert hepcache(*arguments)[0] == 0


def test_evict_removes_what_is_named_and_gives_the_room_back(
    filled: Path, hepcache: Hepcache
) -> None:
    arguments = ("cache", "evict", "--directory", filled)
    assert hepcache(*arguments)[0] == 2
    _, out, _ = hepcache(*arguments, "--column", "Jet_*", "--dry-run", "--json")
    assert json.loads(out)["columns"] == 6
    _, out, _ = hepcache(*arguments, "--older-than", "1 day", "--json")
    assert json.loads(out)["columns"] == 0
    before = ColumnCache(filled / "host-0", capacity_bytes=1 << 30).used_bytes
    _, out, _ = hepcache(*arguments, "--column", "Jet_*", "--json")
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    assert json.loads(out) == {"columns": 6, "bytes": before - cache.used_bytes}
    assert {one.key.column for one in columns(cache.layout) if one.key} == {"nJet"}
    entry, cause = cache.get(ColumnKey("aa", "tag", "Events", 0, 100, "Jet_pt"))
    assert (entry, cause) == (None, "evicted")


def test_clear_asks_first(
    filled: Path, hepcache: Hepcache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    assert hepcache("cache", "clear", "--directory", filled)[0] == 1
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    assert len(list(columns(cache.layout))) == 9
    assert hepcache("cache", "clear", "--directory", filled, "--yes")[0] == 0
    assert list(columns(cache.layout)) == []
    assert cache.used_bytes == 0


def test_a_missing_cache_is_named(tmp_path: Path, hepcache: Hepcache) -> None:
    code, _, err = hepcache("cache", "info", "--directory", tmp_path)
    assert code == 1
    assert str(tmp_path) in err
    assert "--directory" in err
