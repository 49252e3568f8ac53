"""Partial results that a host keeps beside its columns, so that nothing is computed twice.

::

    <cache>/results/key               32 random bytes that only the user can read
    <cache>/results/used              bytes in use, counted by all processes; columns get the rest
    <cache>/results/locks             byte ranges locked by who compacts or evicts
    <cache>/results/tmp/              files being written; anything unlocked here is garbage
    <cache>/results/<work>/<part>.<milliseconds>.<ranges>.result

A result is a pickle, and who loads a pickle runs what is in it. So the
directories are the user's alone, every file carries a hash keyed with the
user's key over all that is in it, and nothing is unpickled whose hash is not
right: a planted, damaged, renamed or truncated file is a counted miss.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hepcache.cache.disk.files import remove_garbage
from hepcache.cache.disk.layout import Layout, prepare, scan
from hepcache.cache.space import Limits, look_at_volume, occupied
from hepcache.errors import (
    CacheDirectoryError,
    ConfigurationError,
    LostResultsError,
    ResultNotStoredError,
)
from hepcache.io.atomic import make_directories, temporary_name, unlink, write_atomically
from hepcache.io.locks import ByteLocks, exclusive
from hepcache.io.shared_count import SharedCount
from hepcache.results.opened_files import content_digest
from hepcache.results.private import check_parent, check_private, user_key
from hepcache.results.stored_result import (
    Header,
    Pieces,
    Range,
    StoredResult,
    Unusable,
    Verified,
    described,
    disjoint,
    is_digest,
    milliseconds_of,
    pack,
    sealed,
    verified,
)
from hepcache.settings import settings

Merge = Callable[[Iterable[Any]], Any]
"""Adds up values, as ``coffea.processor.accumulate`` does."""

_SHARE = 10  # results take at most so manieth a part of the cache's capacity
_LARGEST = 8  # one result takes at most so manieth a part of theirs
_SAVES = 0.7  # a sum replaces results if it takes less than this part of their room
_SLACK = 0.05  # of the capacity, that an eviction leaves free, so that the next is not due at once
_EVICTING = (1 << 62) + 2  # a lock beyond every work's number
_BUSY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class ResultUsage:
    """What stored results take: of how many processors they are, how many, bytes on the volume."""

    processors: int
    results: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ResultCheck:
    """What a check of all results found: sound ones, their size, and paths that were removed."""

    sound: int
    sound_bytes: int
    damaged: tuple[str, ...]


@dataclass(slots=True)
class ResultCounters:
    """Counts since the store was opened in this process.

    Attributes
    ----------
    hits
        Results loaded.
    misses
        Results asked for that could not be loaded, for whatever cause.
    lost
        Files found to be planted, damaged, or of other content of opened
        files; those that were asked for are among the misses, too.
    stored, stored_bytes
        Results stored, and the size of their files.
    refused
        Results not stored, for whatever cause.
    evicted
        Results evicted by this process.
    """

    hits: int = 0
    misses: int = 0
    lost: int = 0
    stored: int = 0
    stored_bytes: int = 0
    refused: int = 0
    evicted: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **numbers: int) -> None:
        """Add to the numbers named."""
        with self._guard:
            for name, number in numbers.items():
                setattr(self, name, getattr(self, name) + number)

    def to_dict(self) -> dict[str, int]:
        """Return the counts as JSON-ready values."""
        names = ("hits", "misses", "lost", "stored", "stored_bytes", "refused", "evicted")
        return {name: getattr(self, name) for name in names}


class ResultStore:
    """Partial results on a host's local volume, shared by its processes.

    Parameters
    ----------
    directory
        The store's directory, private to the user; made where it is missing.
    capacity_bytes
        How much its files may take on the volume.
    limits
        The cache's limits, of which the watermarks count here: below ``cull``
        free, results take no more room than they have; below ``stop`` nothing
        is stored.

    Raises
    ------
    CacheDirectoryError
        The directory is another user's, or others could reach into it.

    Notes
    -----
    Safe to use from any number of threads and processes at once. A crash at
    any point leaves at worst a temporary file, or results beside their sum, of
    which :meth:`holdings` offers one or the other. Files are not synchronised
    with the disk: what a power cut tears has no valid hash, and is computed
    again.

    What is evicted first is what took the least time to compute per byte of
    room and per time since it was last used: ``seconds / nbytes / idle``, so
    that small results that are dear to make stay longest.
    """

    def __init__(
        self, directory: Path, capacity_bytes: int, *, limits: Limits | None = None
    ) -> None:
        if capacity_bytes < 1:
            raise ConfigurationError("capacity_bytes", "at least 1", capacity_bytes)
        self.directory = Path(directory).expanduser().absolute()
        self.capacity_bytes = capacity_bytes
        self._largest_bytes = capacity_bytes // _LARGEST
        self.counters = ResultCounters()
        self._limits = limits or Limits()
        self._layout = Layout(self.directory)
        self._temporary = self.directory / "tmp"
        self._locks = self.directory / "locks"
        self._used = SharedCount(self.directory / "used", self._measure)
        self._fruitless: dict[tuple[str, str], int] = {}
        self._strange: set[str] = set()
        self._prepare()

    @classmethod
    def from_settings(cls) -> ResultStore:
        """Open the store beside the columns of the cache that the configuration names.

        Raises
        ------
        CacheDirectoryError
            The directory is another user's, or others could reach into it.
        """
        chosen = settings()
        return cls.beside(prepare(chosen.cache_directory), Limits.configured(chosen))

    @classmethod
    def beside(cls, layout: Layout, limits: Limits) -> ResultStore:
        """Open the store of a cache directory, with a tenth of the cache's capacity.

        Parameters
        ----------
        layout
            The paths in the directory, of which no group may be a member.
        limits
            How much columns and results may take together.
        """
        if layout.group:
            raise CacheDirectoryError(str(layout.root), "a group's cache keeps no results")
        capacity = max(limits.capacity(look_at_volume(layout)) // _SHARE, 1)
        return cls(layout.results, capacity, limits=limits)

    def put(
        self,
        work: str,
        part: str,
        ranges: Iterable[Range],
        value: Any,
        *,
        opened: Mapping[str, str | None] | None = None,
        seconds: float = 0.0,
    ) -> StoredResult:
        """Store the sum of some chunks' results, in place of what is there of the same chunks.

        Parameters
        ----------
        work, part
            Hex digests of what was done, and of what to.
        ranges
            Entry ranges of the chunks, none of which overlap.
        value
            What they add up to.
        opened
            Path to content digest of the files that were opened meanwhile;
            ``None`` for one that was not there.
        seconds
            What computing took.

        Raises
        ------
        ResultNotStoredError
            It can't be pickled, is too large, or the volume is full or failed.
        ValueError
            A digest or a range is none.
        """
        header = Header.checked(work, part, ranges, opened or {}, seconds)
        try:
            return self._store(header, pack(value), time.time_ns())
        except ResultNotStoredError:
            self.counters.add(refused=1)
            raise

    def holdings(
        self, work: str, wanted: Mapping[str, Collection[Range]] | None = None
    ) -> list[StoredResult]:
        """Return what is stored of some work, so that no entry counts twice, the widest first.

        Parameters
        ----------
        work
            Hex digest of what was done.
        wanted
            Part to the entry ranges of its chunks, to choose among what a run
            can use; see :func:`disjoint`.

        Notes
        -----
        It goes by the files' names. Whether a file is what its name says is
        found out by :meth:`load`.
        """
        return disjoint(self.stored(work), wanted)

    def stored(self, work: str) -> list[StoredResult]:
        """Return all that is stored of some work, in no order; entries may occur twice."""
        try:
            self._check()
            return list(self._results(work))
        except OSError:
            return []  # nothing was stored, or what is there is not ours alone

    def load(self, results: Iterable[StoredResult], merge: Merge) -> Any:
        """Return what stored results add up to.

        Parameters
        ----------
        results
            Of which no two contain the same entry of a part.
        merge
            Adds up values; it gets them one after the other, so that never
            more than two are in memory.

        Raises
        ------
        LostResultsError
            Some are gone, planted, damaged, or a file that was opened while
            they were computed has changed. All of these are named, and their
            files removed; nothing was returned.
        ValueError
            Two of them contain the same entries.

        Notes
        -----
        Hash and opened files are checked before anything is unpickled, on the
        bytes that are unpickled then.
        """
        chosen = list(results)
        if len(disjoint(chosen)) < len(chosen):
            raise ValueError(
                "results: two of them contain the same entries, which would count twice"
            )
        value = merge(self._values(chosen, {}))
        self.counters.add(hits=len(chosen))
        return value

    def compact(
        self,
        work: str,
        merge: Merge,
        wanted: Mapping[str, Collection[Range]] | None = None,
        *,
        paused: Callable[[], bool] = bool,
    ) -> int:
        """Replace results of the same part by their sum where that saves room.

        Parameters
        ----------
        work
            Hex digest of what was done.
        merge
            Adds up values.
        wanted
            Part to the entry ranges of its chunks; only these are merged. Give
            it where there may be results of another cut: a sum over two cuts
            is of use to neither.
        paused
            Asked before each part; once it is true, the others stay as they are.

        Returns
        -------
        int
            Bytes on the volume that were freed; 0, too, where another process
            compacts already.

        Notes
        -----
        The sum is stored before its parts go, for which a little more than the
        capacity may be taken for a moment.
        """
        locks = ByteLocks(self._locks)
        try:
            if not locks.try_lock(_lock_number(work)):
                return 0
            parts: defaultdict[str, list[StoredResult]] = defaultdict(list)
            for result in self.stored(work):
                parts[result.part].append(result)
            return sum(
                self._compact_part(stored, merge, wanted)
                for stored in parts.values()
                if len(stored) > 1 and not paused()
            )
        finally:
            locks.close()

    def evict(self, to_bytes: int | None = None) -> tuple[int, int]:
        """Remove results until the rest takes no more than some bytes on the volume.

        Parameters
        ----------
        to_bytes
            The bytes; the capacity less a twentieth if not given.

        Returns
        -------
        tuple of int
            How many results went, and the bytes that they occupied.
        """
        target = int(self.capacity_bytes * (1 - _SLACK)) if to_bytes is None else to_bytes
        count = freed = 0
        try:
            self._check()
            with exclusive(self._locks, _EVICTING):
                remove_garbage(str(self._temporary))
                files = sorted(self._files(), key=lambda file: file.worth)
                excess = sum(file.nbytes for file in files) - target
                directories = set()
                for file in files:
                    if freed >= excess:
                        break
                    if unlink(file.path):
                        count, freed = count + 1, freed + file.nbytes
                        directories.add(os.path.dirname(file.path))  # noqa: PTH120
                for directory in directories:
                    with suppress(OSError):
                        os.rmdir(directory)  # noqa: PTH106 - one that is not empty stays
                self._used.measured()
        except OSError:  # CacheDirectoryError, too: what is not ours is not touched
            pass
        self.counters.add(evicted=count)
        return count, freed

    def clear(self) -> tuple[int, int]:
        """Remove all results; return how many went, and the bytes that they occupied."""
        return self.evict(-1)

    def usage(self) -> ResultUsage:
        """Return what stored results take on the volume, measured."""
        files = list(self._files())
        works = {os.path.dirname(file.path) for file in files}  # noqa: PTH120
        return ResultUsage(len(works), len(files), sum(file.nbytes for file in files))

    def verify(self) -> ResultCheck:
        """Compare every result with its hash, and remove what is damaged or planted.

        Files that were opened while a result was computed are not looked at.
        """
        sound = sound_bytes = 0
        damaged = []
        self._check()
        key = self._key()
        for work in self._works():
            for result in self.stored(work):
                try:
                    self._read(result, key)
                except FileNotFoundError:
                    continue  # evicted meanwhile
                except (Unusable, OSError):
                    self._discard(result)
                    damaged.append(self._path(result))
                else:
                    sound, sound_bytes = sound + 1, sound_bytes + result.nbytes
        return ResultCheck(sound, sound_bytes, tuple(damaged))

    def __repr__(self) -> str:
        return f"ResultStore({str(self.directory)!r})"

    def _prepare(self) -> None:
        """Make the directory where it is missing, and check whose it is."""
        try:
            for path in (self.directory, self._temporary):
                make_directories(path)
            self._check()
            check_private(self._temporary)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self._locks, flags, 0o600))
        except CacheDirectoryError:
            raise
        except OSError as error:
            problem = f"it can't be made: {error.strerror or error}"
            raise CacheDirectoryError(str(self.directory), problem) from error

    def _check(self) -> None:
        """Raise ``OSError`` where the directory is missing, or not the user's alone."""
        check_private(self.directory)
        check_parent(self.directory)

    def _key(self) -> bytes:
        return user_key(self.directory / "key", self._locks)

    def _work_directory(self, work: str) -> str:
        if not is_digest(work):
            raise ValueError(f"work: expected a hex digest, found {work!r}")
        return f"{self.directory}/{work}"

    def _path(self, result: StoredResult) -> str:
        return f"{self._work_directory(result.work)}/{result.name}"

    def _works(self) -> list[str]:
        """Return the works of which something is stored."""
        return [
            entry.name
            for entry in scan(str(self.directory))
            if is_digest(entry.name) and entry.is_dir(follow_symlinks=False)
        ]

    def _results(self, work: str) -> Iterator[StoredResult]:
        """Yield what is stored of some work, as far as names tell; what is none is counted once.

        Raises ``OSError``: its directory is missing, or not the user's alone.
        """
        directory = self._work_directory(work)
        check_private(Path(directory))
        for entry in scan(directory):
            try:
                result = described(work, entry)
            except FileNotFoundError:
                continue  # evicted meanwhile
            except (Unusable, OSError):
                if entry.path not in self._strange:
                    self._strange.add(entry.path)
                    self.counters.add(lost=1)
            else:
                yield result

    def _files(self) -> Iterator[_File]:
        now_ns = time.time_ns()
        for work in self._works():
            for entry in scan(self._work_directory(work)):
                took_ms = milliseconds_of(entry.name)
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if took_ms is None or stat.S_ISDIR(found.st_mode):
                    continue
                idle_s = max(now_ns - found.st_mtime_ns, 1_000_000) / 1e9
                nbytes = occupied(found.st_size)
                worth = (took_ms + 1) / max(nbytes, 1) / idle_s
                yield _File(entry.path, nbytes, worth)

    def _measure(self) -> int:
        return sum(file.nbytes for file in self._files())

    def _store(
        self, header: Header, pieces: Pieces, used_ns: int, freed_bytes: int = 0
    ) -> StoredResult:
        """Write a file.

        ``used_ns``: when it was last used.
        ``freed_bytes``: what goes as soon as it is stored.
        """
        directory = self._work_directory(header.work)
        try:
            self._prepare()
            with suppress(FileNotFoundError):
                check_private(Path(directory))
            file = sealed(header, pieces, self._key())
            nbytes = sum(map(len, file))
            if nbytes > self._largest_bytes:
                raise ResultNotStoredError(
                    f"it takes {nbytes} bytes, more than an eighth of the {self.capacity_bytes} "
                    "that results may take here; raise hepcache.cache.capacity"
                )
            self._write(f"{directory}/{header.name}", file, nbytes, used_ns, freed_bytes)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            reason = "the volume is full" if full else str(error)
            raise ResultNotStoredError(f"{reason} ({self.directory})") from error
        self.counters.add(stored=1, stored_bytes=nbytes)
        return StoredResult(
            header.work, header.part, header.ranges, nbytes, header.seconds, header.name
        )

    def _write(
        self, path: str, pieces: list[Any], nbytes: int, used_ns: int, freed_bytes: int
    ) -> None:
        size = occupied(nbytes)
        self._reserve(size, freed_bytes)
        replaced = _occupied_at(path)
        try:
            write_atomically(
                path,
                *pieces,
                temporary=temporary_name(f"{self._temporary}/result"),
                locked=True,
                mode=0o600,
                directory_mode=0o700,
                # What a power cut tears has no valid hash: a miss, not worth a wait for the disk.
                durable=False,
                modified_ns=used_ns,
            )
        except BaseException:
            self._count(-size)
            raise
        self._count(-replaced)

    def _reserve(self, size: int, freed_bytes: int) -> None:
        """Count bytes as used, evicting others where they don't fit."""
        volume = look_at_volume(self._layout)
        if volume.below(self._limits.stop, size):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if freed_bytes:
            self._used.add(size)
            return
        if volume.below(self._limits.cull, size):
            self.evict(max(self._used.value() - size, 0))
        if self._used.add(size, limit=self.capacity_bytes):
            return
        self.evict(int(self.capacity_bytes * (1 - _SLACK)) - size)
        if not self._used.add(size, limit=self.capacity_bytes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _count(self, change: int) -> None:
        # A number that can't be written is measured by the next eviction.
        with suppress(OSError):
            if change:
                self._used.add(change)

    def _discard(self, result: StoredResult) -> None:
        """Remove a file that is not what it should be."""
        path = self._path(result)
        size = _occupied_at(path)
        if unlink(path):
            self._count(-size)
        self.counters.add(lost=1)

    def _read(self, result: StoredResult, key: bytes) -> Verified:
        return verified(self._path(result), result, key, self._largest_bytes)

    def _value(
        self, result: StoredResult, key: bytes, opened: dict[str, str | None], *, unpickle: bool
    ) -> Any:
        """Return what is stored.

        ``opened``: path to today's content digest, which grows by the files opened for this one.
        """
        found = self._read(result, key)
        for path, digest in found.header.opened.items():
            if path not in opened:
                opened[path] = content_digest(path)  # once for all: it may be far away
            if opened[path] != digest:
                raise Unusable(f"{path}, opened while it was computed, has changed")
        return found.value() if unpickle else None

    def _values(
        self, results: Sequence[StoredResult], opened: dict[str, str | None]
    ) -> Iterator[Any]:
        """Yield what is stored, one after the other; nothing more once one of them is lost."""
        lost: dict[StoredResult, str] = {}
        try:
            self._check()
            key = self._key()
        except OSError as error:
            lost = dict.fromkeys(results, str(error))
            results = ()
        for result in results:
            try:
                value = self._value(result, key, opened, unpickle=not lost)
            except FileNotFoundError:
                lost[result] = "it was evicted or removed"
            except (Unusable, OSError) as error:
                lost[result] = str(error)
                # A process that can't open one file more has not seen what is in this one.
                if getattr(error, "errno", None) not in _BUSY:
                    self._discard(result)
            else:
                with suppress(OSError):  # evicted meanwhile, it is loaded all the same
                    os.utime(self._path(result), follow_symlinks=False)
                if not lost:
                    yield value
                del value  # what was merged leaves the memory before the next one comes
        if lost:
            self.counters.add(misses=len(lost))
            raise LostResultsError(list(lost), list(lost.values()))

    def _compact_part(
        self,
        stored: Sequence[StoredResult],
        merge: Merge,
        wanted: Mapping[str, Collection[Range]] | None,
    ) -> int:
        chosen = disjoint(stored, wanted)
        freed = self._remove_covered(stored, chosen)
        place = stored[0].work, stored[0].part
        # What did not shrink is not tried for each more result, but when they are twice as many.
        if len(chosen) < max(2, 2 * self._fruitless.get(place, 0)):
            return freed
        size = sum(occupied(result.nbytes) for result in chosen)
        opened: dict[str, str | None] = {}
        try:
            used_ns = max(os.stat(self._path(result)).st_mtime_ns for result in chosen)  # noqa: PTH116
            value = merge(self._values(chosen, opened))
            ranges = sorted(entries for result in chosen for entries in result.ranges)
            seconds = sum(result.seconds for result in chosen)
            header = Header.checked(*place, ranges, opened, seconds)
            pieces = pack(value)
            if occupied(sum(len(piece) for piece, _ in pieces)) >= _SAVES * size:
                self._fruitless[place] = len(chosen)
                return freed
            total = self._store(header, pieces, used_ns, freed_bytes=size)
        except (LostResultsError, ResultNotStoredError, OSError):
            return freed
        self._fruitless.pop(place, None)
        gone = sum(self._remove(result) for result in chosen if result.name != total.name)
        return freed + gone - occupied(total.nbytes)

    def _remove_covered(
        self, stored: Sequence[StoredResult], chosen: Sequence[StoredResult]
    ) -> int:
        """Remove results of which all is in a sum, as a crash leaves them; return their bytes."""
        freed = 0
        for total in chosen:
            covered = [
                result
                for result in stored
                if result.name != total.name and {*result.ranges} <= {*total.ranges}
            ]
            try:
                if covered:
                    self._read(total, self._key())
            except (Unusable, OSError):
                continue  # what is in its place may be all that is left
            freed += sum(map(self._remove, covered))
        return freed

    def _remove(self, result: StoredResult) -> int:
        """Remove a file that is not needed any more; return its bytes on the volume."""
        path = self._path(result)
        size = _occupied_at(path)
        if not unlink(path):
            return 0
        self._count(-size)
        return size


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    nbytes: int
    worth: float


def _occupied_at(path: str) -> int:
    try:
        return occupied(os.stat(path, follow_symlinks=False).st_size)  # noqa: PTH116
    except OSError:
        return 0


def _lock_number(work: str) -> int:
    return int(hashlib.blake2b(work.encode(), digest_size=8).hexdigest(), 16) >> 2
