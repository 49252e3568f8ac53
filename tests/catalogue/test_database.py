from __future__ import annotations

import fcntl
import os
import pickle
import random
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.rootfiles import WriteTree

from hepcache.catalogue import database
from hepcache.catalogue.catalogue import Catalogue
from hepcache.catalogue.database import on_local_volume
from hepcache.errors import CatalogueError
from hepcache.fileset import FileSpec


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound catalogue with a little in it, closed."""
    path = tmp_path / "catalogue.sqlite"
    with Catalogue(path) as catalogue:
        for i in range(200):
            catalogue.blob_put("kind", f"{i}", os.urandom(500))
    return path


def journal(path: Path) -> str:
    connection = sqlite3.connect(path)
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    return str(mode)


def test_file_and_directory_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Catalogue(tmp_path / "new" / "er" / "c.sqlite") as catalogue:
            catalogue.blob_put("a", "b", b"c")
            files = list(catalogue.path.parent.iterdir())
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new" / "er").stat().st_mode) == 0o700


def test_wal_on_a_local_volume_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "on_local_volume", lambda directory: True)
    with Catalogue(path) as catalogue:
        assert catalogue.blob_get("kind", "7")
    assert journal(path) == "wal"
    monkeypatch.setattr(database, "on_local_volume", lambda directory: False)
    with Catalogue(path) as catalogue, Catalogue(path) as second:
        catalogue.blob_put("kind", "new", b"x")
        assert second.blob_get("kind", "new") == b"x"
        assert second.blob_get("kind", "7")
    assert journal(path) == "delete"


def test_file_systems_are_told_apart() -> None:
    assert on_local_volume(Path("/dev/shm"))
    assert not on_local_volume(Path("/proc"))


@pytest.mark.parametrize("content", [b"hello", b"root\x00\x00\x01" + bytes(200), bytes(4096)])
def test_a_file_of_another_kind_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "catalogue.sqlite"
    path.write_bytes(content)
    with pytest.raises(CatalogueError, match=r"not a catalogue of hepcache.* name another file"):
        Catalogue(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("mark", [0, 0x12345678])
def test_a_database_of_another_program_is_left_alone(mark: int, tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.execute(f"PRAGMA application_id={mark}")
    connection.commit()
    connection.close()
    with pytest.raises(CatalogueError, match=r"another program|not a catalogue of hepcache"):
        Catalogue(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_a_newer_schema_is_refused_and_an_older_one_begun_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = path.with_name("newer.sqlite")
    with monkeypatch.context() as changed:
        changed.setattr(database, "SCHEMA_VERSION", database.SCHEMA_VERSION + 1)
        with Catalogue(newer) as catalogue:
            catalogue.blob_put("kind", "7", b"newer")
    with pytest.raises(CatalogueError, match=r"made by a newer hepcache .* upgrade"):
        Catalogue(newer)
    assert not list(path.parent.glob("*.damaged-*"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA user_version=-1")
    connection.close()
    with Catalogue(path) as catalogue:
        assert catalogue.blob_get("kind", "7") is None
        catalogue.blob_put("kind", "7", b"new")
        assert catalogue.blob_get("kind", "7") == b"new"


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[len(data) // 3 :]
    elif how == "garbage":
        data[100:] = os.urandom(len(data) - 100)
    elif how == "zeros":
        data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)


def all_blobs(path: Path) -> set[bytes | None]:
    with Catalogue(path) as catalogue:
        return {catalogue.blob_get("kind", f"{i}") for i in range(200)}


@pytest.mark.parametrize("how", ["cut", "garbage", "zeros"])
def test_a_damaged_catalogue_is_moved_aside(path: Path, how: str) -> None:
    damage(path, how)
    damaged = path.read_bytes()
    with pytest.warns(UserWarning, match="was damaged .* its files will be opened again"):
        assert all_blobs(path) == {None}
    with Catalogue(path) as catalogue:
        catalogue.blob_put("kind", "7", b"new")
        assert catalogue.blob_get("kind", "7") == b"new"
    (aside,) = path.parent.glob("catalogue.sqlite.damaged-*")
    assert aside.read_bytes() == damaged
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_who_find_the_damage_make_one_new_file(path: Path) -> None:
    with Catalogue(path) as first, Catalogue(path) as second:
        first.blob_get("kind", "1")
        second.blob_get("kind", "1")
        for catalogue in (first, second):
            catalogue._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        damage(path, "garbage")
        with pytest.warns(UserWarning, match="was damaged"):
            first.blob_put("kind", "2", b"2")
        second.blob_put("kind", "3", b"3")
        assert first.blob_get("kind", "3") == second.blob_get("kind", "3") == b"3"
        assert first.blob_get("kind", "2") == second.blob_get("kind", "2") == b"2"
    assert len(list(path.parent.glob("catalogue.sqlite.damaged-*"))) == 1


def test_a_place_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CatalogueError, match=r"setting hepcache\.catalogue"):
        Catalogue(tmp_path / "file" / "c.sqlite")
    (tmp_path / "directory").mkdir()
    with pytest.raises(CatalogueError, match=r"directory: .*"):
        Catalogue(tmp_path / "directory")


def test_a_lock_that_is_never_given_back_is_named(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None)
    with Catalogue(path, patience_s=0.05) as catalogue:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogueError, match="another process has kept it locked"):
            catalogue.blob_put("kind", "7", b"new")
        holder.execute("ROLLBACK")
        catalogue.blob_put("kind", "7", b"new")
    holder.close()


def mutated(data: bytes, random: random.Random) -> bytes:
    """Return what a bad disk, a crash or a careless program makes of a file."""
    changed, size = bytearray(data), len(data)
    page = 4096 * random.randrange(max(size // 4096, 1))
    match random.choice(["bit", "header", "bytes", "cut", "page", "head", "swap", "garbage"]):
        case "bit":
            changed[random.randrange(size)] ^= 1 << random.randrange(8)
        case "header":
            changed[random.randrange(min(size, 100))] ^= 1 << random.randrange(8)
        case "bytes":
            at = random.randrange(size)
            changed[at : at + 16] = random.randbytes(16)
        case "cut":
            del changed[random.randrange(size) :]
        case "page":
            changed[page : page + 4096] = bytes(min(4096, size - page))
        case "head":
            at = random.randrange(1, 4096)
            changed[:at] = bytes(at)
        case "swap":
            changed[:4096], changed[page : page + 4096] = (
                changed[page : page + 4096],
                changed[:4096],
            )
        case "garbage":
            changed[page:] = random.randbytes(size - page)
    return bytes(changed)


@pytest.mark.parametrize("state", ["closed", "with its log"])
@pytest.mark.filterwarnings("ignore:.*was damaged.*its files will be opened again:UserWarning")
def test_no_damage_is_more_than_forgetting(
    state: str, tmp_path: Path, write_tree: WriteTree
) -> None:
    specs = [FileSpec("d", str(write_tree(f"{name}.root")), "Events") for name in "abc"]
    sound = tmp_path / "sound" / "catalogue.sqlite"
    with Catalogue(sound) as catalogue:
        expected = catalogue.records(specs)
        for number in range(20):
            catalogue.blob_put("kind", f"{number}", b"%d" % number * 200)
        if state == "with its log":
            shutil.copytree(sound.parent, tmp_path / "copy")
    kept = sound.parent if state == "closed" else tmp_path / "copy"
    for number in range(60):
        seed = random.Random(f"{state} {number}")
        place = tmp_path / f"{number}"
        shutil.copytree(kept, place)
        victims = sorted(one for one in place.iterdir() if one.suffix != ".lock")
        victim = seed.choice(victims)
        victim.write_bytes(mutated(victim.read_bytes(), seed))
        with Catalogue(place / sound.name, patience_s=1) as catalogue:
            assert catalogue.records(specs) == expected, number
            assert {record.path for record in catalogue.known()} >= {spec.path for spec in specs}
            assert catalogue.blob_get("kind", "7") in (None, b"7" * 200)
            catalogue.blob_put("kind", "7", b"new")
        with Catalogue(place / sound.name, patience_s=1) as catalogue:
            # Some damage shows only now, and costs what was written over it, once.
            if catalogue.blob_get("kind", "7") != b"new":
                assert list(place.glob("*.damaged-*")), number
            assert catalogue.records(specs) == expected
        shutil.rmtree(place)


def test_a_replacement_that_hangs_is_not_waited_for(path: Path) -> None:
    with path.with_name(f"{path.name}.lock").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            CatalogueError, match=r"another process has kept it locked for 0\.05 s"
        ):
            Catalogue(path, patience_s=0.05)
    with Catalogue(path, patience_s=0.05) as catalogue:
        assert catalogue.blob_get("kind", "7")


def test_one_in_memory_ends_with_itself(path: Path, write_tree: WriteTree) -> None:
    spec = FileSpec("d", str(write_tree("a.root")), "Events")
    with Catalogue(path) as kept, Catalogue.in_memory() as catalogue:
        assert catalogue.records([spec]) == kept.records([spec])
        catalogue.blob_put("kind", "7", b"new")
        assert catalogue.blob_get("kind", "7") == b"new"
        assert repr(catalogue) == "Catalogue(':memory:')"
    assert Catalogue.in_memory().blob_get("kind", "7") is None
    assert list(pickle.loads(pickle.dumps(catalogue)).known()) == []
