"""The catalogue's SQLite file: made private, shared by processes, mended when damaged."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil

from hepcache.errors import CatalogueError

__all__ = [
    "APPLICATION_ID",
    "SCHEMA_VERSION",
    "explain",
    "on_local_volume",
    "open_database",
    "replace_damaged",
    "transaction",
]

APPLICATION_ID = 0x68657063  # "hepc"; SQLite keeps it in the file's header
SCHEMA_VERSION = 1
_BUSY_S = 60.0
_ANOTHER = "name another file (setting hepcache.catalogue), or remove this one"
_OPENING = threading.Lock()
_SCHEMA = (
    """CREATE TABLE files (location TEXT, tree TEXT, facts TEXT NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (location, tree)) WITHOUT ROWID""",
    """CREATE TABLE blobs (kind TEXT, key TEXT, data BLOB NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (kind, key))""",
)
# WAL keeps its index in shared memory, which only processes of one machine
# share: on a file server two hosts would destroy the file. What isn't known
# to be a local file system counts as a server.
_LOCAL = frozenset({
    "apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "hfs", "jfs", "overlay",
    "ramfs", "reiserfs", "tmpfs", "ufs", "xfs", "zfs",
})  # fmt: skip


def open_database(path: Path) -> sqlite3.Connection:
    """Open the catalogue's file, making it where there is none.

    Parameters
    ----------
    path
        The file. Missing directories are made for the user alone (0700), the
        file too (0600).

    Returns
    -------
    sqlite3.Connection
        In autocommit mode; may be used by several threads under one lock.

    Raises
    ------
    CatalogueError
        The file can't be made, belongs to another program, was made by a
        newer hepcache, or is locked for too long.

    Warns
    -----
    UserWarning
        The file was damaged; it was moved aside and a new one begun.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _OPENING, _lock(path, fcntl.LOCK_SH):
            _create(path)
            return _connect(path)
    except CatalogueError:
        raise
    except sqlite3.OperationalError as error:
        raise CatalogueError(str(path), explain(error)) from error
    except sqlite3.DatabaseError:
        return replace_damaged(path)
    except OSError as error:
        raise CatalogueError(
            str(path),
            f"{error.strerror or error}; name a file in a directory you can write to "
            "(setting hepcache.catalogue)",
        ) from error


def on_local_volume(directory: Path) -> bool:
    """Return whether a directory is on a file system of this machine alone."""
    resolved = directory.resolve()
    best, kind = -1, ""
    for part in psutil.disk_partitions(all=True):
        mount = Path(part.mountpoint)
        # The last mount over the same point is the one that is seen.
        if resolved.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), part.fstype
    return kind in _LOCAL


def _create(path: Path) -> None:
    # SQLite gives its own files beside it the same permissions. The lock above
    # keeps this close from dropping locks of another thread's connection.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        _check_owner(connection, path)
        _set_journal(connection, "wal" if on_local_volume(path.parent) else "delete")
        connection.execute("PRAGMA synchronous=NORMAL")
        _make_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that another program keeps; our own have our mark in the header."""
    # Asked through SQLite: to open and close the file here would drop the
    # locks that other connections of this process hold on it.
    foreign = "the file is not a catalogue of hepcache"
    try:
        connection.execute("BEGIN")  # one view for both: another process may be making it
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        fresh = mark == 0 and not connection.execute("SELECT * FROM sqlite_master").fetchall()
        connection.execute("COMMIT")
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise CatalogueError(str(path), f"{foreign}; {_ANOTHER}") from error
    if mark != APPLICATION_ID and not fresh:
        raise CatalogueError(str(path), f"{foreign}, but another program's; {_ANOTHER}")


def _set_journal(connection: sqlite3.Connection, mode: str) -> None:
    # Changing the mode needs the file alone, and SQLite does not wait for that.
    deadline = time.monotonic() + _BUSY_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != mode:
                connection.execute(f"PRAGMA journal_mode={mode}")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _make_schema(connection: sqlite3.Connection, path: Path) -> None:
    if _version(connection) == SCHEMA_VERSION:
        return
    with transaction(connection):
        found = _version(connection)  # another process may have been first
        if found == SCHEMA_VERSION:
            return
        if found > SCHEMA_VERSION:
            raise CatalogueError(
                str(path),
                f"made by a newer hepcache (schema {found}, this one knows {SCHEMA_VERSION}); "
                f"upgrade, or {_ANOTHER}",
            )
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        for (name,) in tables:  # facts of an older schema are found again
            connection.execute(f"DROP TABLE {name}")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing, after waiting for other writers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def replace_damaged(path: Path) -> sqlite3.Connection:
    """Move a damaged catalogue aside and begin a new one, once among all processes.

    A process that comes late finds the new file sound, and opens that.

    Warns
    -----
    UserWarning
        The file was moved aside.
    """
    with _OPENING, _lock(path, fcntl.LOCK_EX):
        try:
            connection = _connect(path)
            _check(connection)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            problem = " ".join(str(error).split())
        else:
            return connection
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        path.rename(aside)
        for suffix in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        _create(path)
        connection = _connect(path)
    warnings.warn(
        f"catalogue {path} was damaged ({problem}); it is now {aside.name}, and its files "
        "will be opened again",
        UserWarning,
        stacklevel=4,
    )
    return connection


def _check(connection: sqlite3.Connection) -> None:
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError:
        connection.close()
        raise
    if found != "ok":
        connection.close()
        raise sqlite3.DatabaseError(found)


@contextlib.contextmanager
def _lock(path: Path, kind: int) -> Iterator[None]:
    """Let many open the file at a time, or one replace it while nobody opens it."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    lock = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        fcntl.flock(lock, kind)
        yield
    finally:
        os.close(lock)


def explain(error: sqlite3.Error) -> str:
    """Say what to do about an error of SQLite."""
    if "locked" in str(error):
        return f"another process has kept it locked for {_BUSY_S:.0f} s; try again when it is done"
    return f"{error}; check the disk's space and the file's permissions"
