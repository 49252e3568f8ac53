"""The catalogue's SQLite file: made private, shared by processes, replaced when damaged.

Rows carry a checksum, which SQLite has none of.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import xxhash

from hepcache.errors import CatalogueError
from hepcache.fileset.model import FileRecord
from hepcache.fscache import mount_below
from hepcache.io.atomic import make_directories

APPLICATION_ID = 0x68657063  # "hepc"; SQLite keeps it in the file's header
SCHEMA_VERSION = 2
PATIENCE_S = 60.0
"""For how long another process's lock is waited for."""

_ANOTHER = "name another file (setting hepcache.catalogue), or remove this one"
_OPENING = threading.Lock()
_INHERITED: list[sqlite3.Connection] = []
_T = TypeVar("_T")
_SCHEMA = (
    """CREATE TABLE files (location TEXT, tree TEXT, facts TEXT NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (location, tree)) WITHOUT ROWID""",
    """CREATE TABLE blobs (kind TEXT, key TEXT, data BLOB NOT NULL, digest TEXT NOT NULL,
       PRIMARY KEY (kind, key))""",
)
# WAL keeps its index in shared memory, which only processes of one machine
# share: on a file server two hosts would destroy the file. What isn't known
# to be a local file system counts as a server.
_LOCAL = frozenset(
    {
        "apfs",
        "bcachefs",
        "btrfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfs",
        "jfs",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "ufs",
        "xfs",
        "zfs",
    }
)


# What the machine or another process is to blame for. Everything else that SQLite can say
# of our few statements comes from the file: a bad schema is an SQLITE_ERROR, for example.
_NOT_THE_FILE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_MISUSE,
    }
)


class Opened(NamedTuple):
    """A connection, and the inode of its file."""

    connection: sqlite3.Connection
    inode: int


class _UnreadableError(sqlite3.DatabaseError):
    """What SQLite itself takes for sound is no catalogue any more."""


class Database:
    """One connection to the catalogue's file, for any thread, reopened after a fork.

    ``path``: the file; made when missing. ``None`` for memory.
    """

    def __init__(self, path: Path | None, patience_s: float = PATIENCE_S) -> None:
        self.path, self._patience_s = path, patience_s
        self._lock = threading.RLock()
        self._opened: Opened | None = self._begun()
        self._process = os.getpid()

    def execute(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, self._errors():
            return self._mended(lambda connection: connection.execute(query, values).fetchall())

    def change(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Execute a statement for all rows or none; return how many rows it changed."""
        with self._lock, self._errors():
            return self._mended(lambda connection: _write(connection, statement, rows))

    def examine(self) -> None:
        """Look at the whole file, because a row was damaged; begin a new one if it is, too."""
        with self._lock, self._errors():
            self._mended(_check)

    def close(self) -> None:
        """Close the file; it opens again when it is used again."""
        with self._lock:
            self._leave_to_parent()
            if self._opened is not None:
                self._opened.connection.close()
            self._opened = None

    def _begun(self) -> Opened:
        if self.path is None:
            return _open_in_memory()
        return _open_database(self.path, self._patience_s)

    def _open(self) -> Opened:
        self._leave_to_parent()
        if self._opened is None:
            self._opened, self._process = self._begun(), os.getpid()
        return self._opened

    def _leave_to_parent(self) -> None:
        # SQLite's locks do not survive a fork, so a child opens the file anew,
        # and never closes what it inherited: that could drop its parent's files.
        if self._opened is not None and self._process != os.getpid():
            _INHERITED.append(self._opened.connection)
            self._opened = None

    def _mended(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do something; once more with a new file where the old one proves damaged."""
        connection, inode = self._open()
        try:
            return action(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if self.path is None or not _is_damage(error, self.path):
                raise
            connection.close()
            self._opened = None
            self._opened = _replace_damaged(self.path, inode, error, self._patience_s)
            return action(self._opened.connection)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CatalogueError:
            raise
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            problem = _explain(error, self._patience_s)
            raise CatalogueError(str(self.path or ":memory:"), problem) from error


def _write(connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> int:
    before = connection.total_changes
    with _transaction(connection):
        connection.executemany(statement, rows)
    return connection.total_changes - before


def _open_database(path: Path, patience_s: float = PATIENCE_S) -> Opened:
    """Open the catalogue's file, making it where there is none.

    ``path``: the file. Missing directories are made for the user alone (0700), the file too
    (0600).
    It returns the connection, in autocommit mode, may be used by several threads under one lock.
    """
    inode = -1
    try:
        make_directories(path.parent)
        with _OPENING, _lock(path, fcntl.LOCK_SH, patience_s) as lock:
            _create(path)
            inode = path.stat().st_ino
            return Opened(_connect(path, lock, patience_s), inode)
    except CatalogueError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if not _is_damage(error, path):
            raise CatalogueError(str(path), _explain(error, patience_s)) from error
        return _replace_damaged(path, inode, error, patience_s)
    except OSError as error:
        raise CatalogueError(
            str(path),
            f"{error.strerror or error}; name a file in a directory you can write to "
            "(setting hepcache.catalogue)",
        ) from error


def _open_in_memory() -> Opened:
    """Begin a catalogue that lasts as long as its connection."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _make_schema(connection, ":memory:")
    return Opened(connection, -1)


def _is_damage(error: Exception, path: Path) -> bool:
    """Tell whether an error of SQLite says that the file is not what was written."""
    if not isinstance(error, sqlite3.Error) or isinstance(error, _UnreadableError):
        return True
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
    if code == sqlite3.SQLITE_READONLY:
        # The header may ask for a later SQLite, which reads but must not write.
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _NOT_THE_FILE


def on_local_volume(directory: Path) -> bool:
    """Return whether a directory is on a file system of this machine alone."""
    mount = mount_below(directory)
    return mount is not None and mount.filesystem in _LOCAL


def _create(path: Path) -> None:
    # SQLite gives its own files beside it the same permissions. The lock above
    # keeps this close from dropping locks of another thread's connection.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _connect(path: Path, lock: int, patience_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=patience_s, isolation_level=None, check_same_thread=False
    )
    try:
        # Text that is damaged fails its checksum, which is better than failing here.
        connection.text_factory = lambda data: data.decode(errors="replace")
        # The lock's file says what the catalogue was when it could last be opened.
        known = os.pread(lock, len(_mark()) + 1, 0) == _mark()
        _check_owner(connection, path, known=known)
        _set_journal(connection, "wal" if on_local_volume(path.parent) else "delete", patience_s)
        connection.execute("PRAGMA synchronous=NORMAL")
        _make_schema(connection, str(path), known=known)
    except BaseException:
        connection.close()
        raise
    if not known:
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, _mark(), 0)
    return connection


def _mark() -> bytes:
    return f"A catalogue of hepcache, schema {SCHEMA_VERSION}\n".encode()


def _check_owner(connection: sqlite3.Connection, path: Path, *, known: bool) -> None:
    """Refuse a file that another program keeps; our own have our mark in the header.

    One that is known to have been a catalogue is a damaged one without it.
    """
    # Asked through SQLite: to open and close the file here would drop the
    # locks that other connections of this process hold on it.
    foreign = "the file is not a catalogue of hepcache"
    try:
        connection.execute("BEGIN")  # one view for both: another process may be making it
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        if mark != APPLICATION_ID:
            tables = connection.execute("SELECT * FROM sqlite_master").fetchall()
            if mark or tables:
                raise _UnreadableError(f"{foreign}, but another program's")
        connection.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if known or not _is_damage(error, path):
            raise
        said = error if isinstance(error, _UnreadableError) else foreign
        raise CatalogueError(str(path), f"{said}; {_ANOTHER}") from error


def _set_journal(connection: sqlite3.Connection, mode: str, patience_s: float) -> None:
    # Changing the mode needs the file alone, and SQLite does not wait for that.
    deadline = time.monotonic() + patience_s
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


def _make_schema(connection: sqlite3.Connection, path: str, *, known: bool = False) -> None:
    if _version(connection) == SCHEMA_VERSION:
        return
    with _transaction(connection):
        found = _version(connection)  # another process may have been first
        if found == SCHEMA_VERSION:
            return
        if found > SCHEMA_VERSION:
            newer = f"made by a newer hepcache (schema {found}, this one knows {SCHEMA_VERSION})"
            if known:
                raise _UnreadableError(f"it says that it was {newer}, and was not")
            raise CatalogueError(path, f"{newer}; upgrade, or {_ANOTHER}")
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
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing, after waiting for other writers."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection) -> None:
    """Read the whole file."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise _UnreadableError(found)


def _replace_damaged(
    path: Path, inode: int, problem: Exception, patience_s: float = PATIENCE_S
) -> Opened:
    """Move a damaged catalogue aside and begin a new one, once among all processes.

    A process that comes late finds another file there, and opens that.
    """
    aside = None
    with _OPENING, _lock(path, fcntl.LOCK_EX, patience_s) as lock:
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
                path.rename(aside)
                for suffix in ("-wal", "-shm", "-journal"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
        _create(path)
        inode = path.stat().st_ino
        opened = Opened(_connect(path, lock, patience_s), inode)
    if aside is not None:
        warnings.warn(
            f"catalogue {path} was damaged ({' '.join(str(problem).split())}); it is now "
            f"{aside.name}, and its files will be opened again",
            UserWarning,
            stacklevel=4,
        )
    return opened


@contextlib.contextmanager
def _lock(path: Path, kind: int, patience_s: float) -> Iterator[int]:
    """Let many open the file at a time, or one replace it while no other opens it."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    lock = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    deadline = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CatalogueError(str(path), _locked(patience_s)) from None
                time.sleep(0.01)
            else:
                break
        yield lock
    finally:
        os.close(lock)


def _explain(error: Exception, patience_s: float = PATIENCE_S) -> str:
    """Say what to do about an error of SQLite."""
    if "locked" in str(error):
        return _locked(patience_s)
    return f"{error}; check the disk's space and the file's permissions"


def _locked(patience_s: float) -> str:
    return f"another process has kept it locked for {patience_s:.3g} s; try again when it is done"


def checksum(*row: Any) -> str:
    """Return 16 hexadecimal digits that SQLite, which has no checksums, keeps beside a row.

    The row's key counts, because a flipped bit turns the name of one file into
    another's; so do types, because damaged columns hold values of any.
    """
    return xxhash.xxh3_64_hexdigest(ascii(row).encode())


def encoded(location: str, tree: str, record: FileRecord, settled: bool) -> tuple[str, ...]:
    """Return a record's row: its key, the record as JSON, and their checksum."""
    facts = {"settled": settled, **asdict(record)}
    # Where else a file lies, and what failed, is the run's to say.
    del facts["places"], facts["failures"]
    text = json.dumps(facts, separators=(",", ":"))
    return location, tree, text, checksum(location, tree, text)


def decoded(location: Any, tree: Any, facts: Any, digest: Any) -> tuple[FileRecord, bool] | None:
    """Return a record and whether its validator can be trusted; ``None`` if damaged."""
    if checksum(location, tree, facts) != digest:
        return None
    values = json.loads(facts)
    settled = bool(values.pop("settled"))
    return FileRecord(**{**values, "clusters": tuple(values["clusters"])}), settled


def storable(path: str) -> str:
    """Return a path as SQLite can keep it: names that are not UTF-8 with escapes."""
    return path.encode(errors="backslashreplace").decode()


def below(place: str) -> str:
    """Return SQLite's pattern of everything below a directory."""
    escaped = re.sub(r"([*?[])", r"[\1]", place)
    return f"{escaped}/*"
