from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Hepcache

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.access_log import AccessLog
from hepcache.cache.admin import Provenance, note_provenance, provenance_of
from hepcache.cache.contents import stored_columns
from hepcache.cache.space import Space
from hepcache.results.store import ResultStore


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    cache = ColumnCache(tmp_path / "hosts" / "host-0", capacity_bytes=1 << 30, codec="raw")
    for uuid, dataset in (("aa", "DY"), ("bb", "TT"), ("cc", None)):
        for number, name in enumerate(("nJet", "Jet_pt", "Jet_eta")):
            values = np.arange(10_000 * (number + 1), dtype=np.float32)
            assert cache.put(ColumnKey(uuid, "tag", "Events", 0, 100, name), Entry(b"", (values,)))
        if dataset:
            note_provenance(cache, uuid, "tag", Provenance(f"/data/{dataset}.root", (dataset,)))
    cache.close()
    return tmp_path / "hosts"


def test_a_content_may_be_of_several_datasets(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "c", capacity_bytes=1 << 20)
    assert provenance_of(cache, "aa", "tag") is None
    note_provenance(cache, "aa", "tag", Provenance("/old.root", ("DY",)))
    note_provenance(cache, "aa", "tag", Provenance("/new.root", ("all",)))
    assert provenance_of(cache, "aa", "tag") == Provenance("/new.root", ("DY", "all"))


def test_info_tells_what_occupies_the_room(
    filled: Path, hepcache: Hepcache, tmp_path: Path
) -> None:
    code, out, _ = hepcache("cache", "info", "--directory", filled, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 0
    assert found["directory"] == str(filled / "host-0")
    assert (found["columns"], found["contents"], found["quarantined"]) == (9, 3, 0)
    assert set(found["by_dataset"]) == {"DY", "TT", "cc"}
    assert list(found["by_column"]) == ["Jet_eta", "Jet_pt", "nJet"]
    assert found["oldest_s"] < found["newest_s"]
    assert (found["believed_bytes"], found["small_files"]) == (found["used_bytes"], 2)
    assert found["generation"] > 0
    assert tmp_path.is_relative_to(found["volume"]["mount_point"])
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
    _, out, _ = hepcache(*arguments, "--sort", "age", "--limit", "1")
    oldest = json.loads(out)["columns"][0]
    _, out, _ = hepcache(*arguments, "--sort", "age", "--reverse", "--limit", "1")
    assert oldest["stored_s"] < json.loads(out)["columns"][0]["stored_s"]


def test_ls_tells_what_is_used_least(filled: Path, hepcache: Hepcache) -> None:
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    for uuid, name in (("aa", "nJet"), ("bb", "nJet"), ("bb", "nJet")):
        assert cache.get(ColumnKey(uuid, "tag", "Events", 0, 100, name))[1] == "hit"
    cache.flush()
    _, out, _ = hepcache("cache", "ls", "--directory", filled, "--json", "--sort", "use")
    found = json.loads(out)["columns"]
    assert [(one["uuid"], one["column"], one["uses"]) for one in found[-2:]] == [
        ("aa", "nJet", 2),
        ("bb", "nJet", 3),
    ]
    assert {one["uses"] for one in found[:-2]} == {1}
    idle = [one["idle"] for one in found]
    assert idle == sorted(idle, reverse=True)
    assert idle[-1] == 0


def test_several_caches_are_told_apart(filled: Path, hepcache: Hepcache, tmp_path: Path) -> None:
    other = ColumnCache(tmp_path / "other", capacity_bytes=1 << 30)
    key = ColumnKey("dd", "tag", "Events", 0, 100, "met")
    assert other.put(key, Entry(b"", (np.zeros(10),)))
    twice = ("--directory", filled, "--directory", tmp_path / "other", "--directory", filled)
    _, out, _ = hepcache("cache", "info", *twice, "--json")
    assert [Path(one["directory"]).name for one in json.loads(out)["caches"]] == [
        "host-0",
        "other",
    ]
    code, out, _ = hepcache("cache", "ls", *twice)
    assert code == 0
    assert "10 columns of segments" in out
    assert str(tmp_path / "other") in out


def test_verify_finds_a_flipped_byte(filled: Path, hepcache: Hepcache) -> None:
    arguments = ("cache", "verify", "--directory", filled)
    code, out, _ = hepcache(*arguments)
    assert code == 0
    assert f"{filled / 'host-0'}: 9 columns sound" in out
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    victim = Path(next(stored_columns(cache.layout)).path)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    code, out, _ = hepcache(*arguments, "--json")
    (found,) = json.loads(out)["caches"]
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
    assert json.loads(out)["files"] == 6
    _, out, _ = hepcache(*arguments, "--older-than", "1 day", "--json")
    assert json.loads(out)["files"] == 0
    before = ColumnCache(filled / "host-0", capacity_bytes=1 << 30).used_bytes
    _, out, _ = hepcache(*arguments, "--column", "Jet_*", "--json")
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    found = json.loads(out)
    assert (found["files"], found["bytes"]) == (6, before - cache.used_bytes)
    (part,) = found["caches"]
    assert part == {"directory": str(filled / "host-0"), "files": 6, "bytes": found["bytes"]}
    assert {one.key.column for one in stored_columns(cache.layout) if one.key} == {"nJet"}
    entry, cause = cache.get(ColumnKey("aa", "tag", "Events", 0, 100, "Jet_pt"))
    assert (entry, cause) == (None, "evicted")


def test_evict_takes_as_much_as_is_asked(filled: Path, hepcache: Hepcache) -> None:
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    arguments = ("cache", "evict", "--directory", filled, "--json")
    before = cache.used_bytes
    _, out, _ = hepcache(*arguments, "--bytes", "100 kB", "--dry-run")
    assert 100_000 <= json.loads(out)["bytes"] < before
    assert cache.used_bytes == before
    assert hepcache(*arguments, "--bytes", "100 kB")[1] == out
    left = before - json.loads(out)["bytes"]
    assert cache.used_bytes == left
    # What is chosen occupies so much at most; the rest stays as it is.
    _, out, _ = hepcache(*arguments, "--dataset", "TT", "--to", "0")
    assert cache.used_bytes == left - json.loads(out)["bytes"]
    assert not [one for one in stored_columns(cache.layout) if one.key and one.key.uuid == "bb"]
    _, out, _ = hepcache(*arguments, "--to", "1 GB")
    assert json.loads(out)["files"] == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--bytes", "some"), "--bytes"),
        (("--to", "-1"), "--to"),
        (("--older-than", "yesterday"), "--older-than"),
        (("--older-than", "-7 days"), "--older-than"),
        (("--to", "1 GB", "--bytes", "1 GB"), "one of the two"),
    ],
)
def test_evict_refuses_what_it_does_not_understand(
    filled: Path, hepcache: Hepcache, options: tuple[str, ...], named: str
) -> None:
    code, _, err = hepcache("cache", "evict", "--directory", filled, *options)
    assert (code, named in err) == (2, True)


def test_clear_asks_first(
    filled: Path, hepcache: Hepcache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    assert hepcache("cache", "clear", "--directory", filled)[0] == 1
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    assert len(list(stored_columns(cache.layout))) == 9
    assert hepcache("cache", "clear", "--directory", filled, "--yes")[0] == 0
    assert list(stored_columns(cache.layout)) == []
    assert cache.used_bytes == 0
    assert provenance_of(cache, "aa", "tag") is None
    _, out, _ = hepcache("cache", "info", "--directory", filled, "--json")
    found = json.loads(out)["caches"][0]
    assert (found["columns"], found["small_files"], found["oldest_s"]) == (0, 0, None)
    assert hepcache("cache", "info", "--directory", filled)[0] == 0


def test_verify_names_what_is_not_the_caches(filled: Path, hepcache: Hepcache) -> None:
    root = filled / "host-0"
    (root / "notes.txt").write_text("mine")
    (root / "origins").mkdir(exist_ok=True)  # made where origins are read
    (root / "v1" / "aa-tag" / "Events" / "0-100" / "copy").write_text("what?")
    stored = root / "v1" / "aa-tag" / "Events" / "0-100"
    (stored / "nJet.col").rename(stored / "Jet_mass.col")
    code, out, _ = hepcache("cache", "verify", "--directory", filled, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 0
    assert found["unknown"] == [str(root / "notes.txt"), str(stored / "copy")]
    assert found["foreign"] == [str(stored / "Jet_mass.col")]
    assert found["sound"] == 8
    assert all(Path(path).exists() for path in found["unknown"] + found["foreign"])
    _, out, _ = hepcache("cache", "verify", "--directory", filled)
    assert out.count("left alone") == 3


def test_verify_mends_small_metadata_and_the_count(filled: Path, hepcache: Hepcache) -> None:
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    note = Path(cache.layout.blob("origin", "aa-tag"))
    note.write_bytes(note.read_bytes()[:-1] + b"?")
    # A writer that is killed has reserved what it never wrote.
    log = AccessLog(cache.layout.access_log, cache.layout.locks)
    Space(cache.layout, log, cache.limits).reserve(1 << 20)
    believed = cache.used_bytes
    code, out, err = hepcache("cache", "verify", "--directory", filled, "--json")
    (found,) = json.loads(out)["caches"]
    assert (code, err) == (1, "")
    assert (found["sound"], found["damaged"]) == (9, [str(note)])
    assert found["used_bytes"] == cache.used_bytes == believed - (1 << 20)
    assert [one.name.partition(".")[0] for one in cache.layout.quarantine.iterdir()] == ["aa-tag"]
    assert hepcache("cache", "verify", "--directory", filled)[0] == 0


def test_metrics_are_for_prometheus_and_for_programs(filled: Path, hepcache: Hepcache) -> None:
    code, out, _ = hepcache("cache", "metrics", "--directory", filled)
    assert code == 0
    assert "# TYPE hepcache_chunks_total counter" in out
    (line,) = (line for line in out.splitlines() if line.startswith("hepcache_user_bytes{"))
    _, text, _ = hepcache("cache", "metrics", "--directory", filled, "--json")
    values = [one for one in json.loads(text)["metrics"] if one["name"] == "hepcache_user_bytes"]
    assert [str(one["value"]) for one in values] == [line.rpartition(" ")[2]]


def test_a_missing_cache_is_named(tmp_path: Path, hepcache: Hepcache) -> None:
    code, _, err = hepcache("cache", "info", "--directory", tmp_path)
    assert code == 1
    assert str(tmp_path) in err
    assert "--directory" in err


@pytest.fixture
def store(filled: Path) -> ResultStore:
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    store = ResultStore.beside(cache.layout, cache.limits)
    for work in ("aaaaaaaa", "bbbbbbbb"):
        for number in range(3):
            store.put(work, "cccccccc", [(number, number + 1)], number)
    return store


def test_info_tells_what_stored_results_take(
    filled: Path, store: ResultStore, hepcache: Hepcache
) -> None:
    code, out, _ = hepcache("cache", "info", "--directory", filled, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 0
    assert (found["results"], found["results_processors"]) == (6, 2)
    assert found["results_bytes"] == store.usage().nbytes
    assert found["columns"] == 9
    _, out, _ = hepcache("cache", "info", "--directory", filled)
    assert "6 of 2 processors, 24.6 kB" in out


def test_clear_removes_stored_results_too_or_only_them(
    filled: Path, store: ResultStore, hepcache: Hepcache, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("cache", "clear", "--directory", filled)
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    assert hepcache(*arguments, "--results")[0] == 1
    assert store.usage().results == 6
    code, out, _ = hepcache(*arguments, "--results", "--yes", "--json")
    assert (code, json.loads(out)["files"]) == (0, 6)
    assert store.usage().results == 0
    cache = ColumnCache(filled / "host-0", capacity_bytes=1 << 30)
    assert len(list(stored_columns(cache.layout))) == 9
    store.put("aaaaaaaa", "cccccccc", [(0, 1)], 1)
    assert hepcache(*arguments, "--yes")[0] == 0
    assert store.usage().results == 0
    assert list(stored_columns(cache.layout)) == []
    assert hepcache(*arguments, "--results", "--quarantine")[0] == 2


def test_verify_removes_a_planted_result(
    filled: Path, store: ResultStore, hepcache: Hepcache
) -> None:
    arguments = ("cache", "verify", "--directory", filled)
    code, out, _ = hepcache(*arguments)
    assert (code, "9 columns sound" in out, "6 results sound" in out) == (0, True, True)
    victim = next((store.directory / "aaaaaaaa").iterdir())
    victim.write_bytes(b"planted")
    assert hepcache(*arguments, "--dataset", "DY")[0] == 0
    assert victim.exists()
    code, out, _ = hepcache(*arguments, "--json")
    (found,) = json.loads(out)["caches"]
    assert code == 1
    assert (found["results"], found["damaged_results"]) == (5, [str(victim)])
    assert (found["damaged"], found["unknown"]) == ([], [])
    assert not victim.exists()
    assert hepcache(*arguments)[0] == 0


def test_results_that_others_could_reach_are_an_error(
    filled: Path, store: ResultStore, hepcache: Hepcache
) -> None:
    store.directory.chmod(0o755)
    code, _, err = hepcache("cache", "info", "--directory", filled)
    assert code == 1
    assert "chmod 700" in err.replace("\n", " ")
    store.directory.chmod(0o700)
