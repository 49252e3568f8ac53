from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from hepcache.errors import CatalogueError
from hepcache.fileset import Catalogue, database
from hepcache.fileset.database import on_local_volume


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


def test_a_newer_schema_is_refused_and_an_older_one_begun_anew(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA user_version={database.SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(CatalogueError, match=r"made by a newer hepcache .* upgrade"):
        Catalogue(path)
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


def test_a_lock_that_is_never_given_back_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_BUSY_S", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    with Catalogue(path) as catalogue:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogueError, match="another process has kept it locked"):
            catalogue.blob_put("kind", "7", b"new")
        holder.execute("ROLLBACK")
        catalogue.blob_put("kind", "7", b"new")
    holder.close()
