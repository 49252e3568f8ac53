"""One stored result: its file's name and bytes, and which of several to choose.

A file is a preamble, a keyed hash over all the rest, a header in JSON, the
pickle, and the pickle's large buffers::

    magic, version, header bytes, file bytes | hash | header | pickle | buffer | ...
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import pickle
import re
import stat
import struct
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import cloudpickle
import lz4.frame

from hepcache.errors import ResultNotStoredError

Range = tuple[int, int]
"""First entry of a chunk, and the one after its last."""

Pieces = list[tuple[Any, int]]
"""Buffers as they are stored, and their lengths where they are compressed, else 0."""

_NONE: frozenset[Range] = frozenset()
_DIGEST = re.compile(r"[0-9a-f]{8,128}")
_NAME = re.compile(
    r"(?P<part>[0-9a-f]{8,128})\.(?P<ms>\d{1,15})"
    r"\.(?:(?P<ranges>\d+-\d+(?:_\d+-\d+)*)|~(?P<digest>[0-9a-f]{32}))\.result"
)
_LONGEST_NAME = 255
_MAGIC, _VERSION = b"\x89HCRES\r\n", 1
_PREAMBLE = struct.Struct("<8sIIQ")
_HASH_BYTES = 32
_HEADER_AT = _PREAMBLE.size + _HASH_BYTES
_LONGEST_HEADER = 16 << 20
_OUTSIDE = 64 << 10  # larger buffers are kept beside the pickle, which saves copies of them
_WORTH = 0.9  # a buffer that does not shrink to this part is kept as it is


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One stored result, as its file's name tells.

    Attributes
    ----------
    work
        Hex digest of what was done: processor's fingerprint, schema, options.
    part
        Hex digest of what it was done to: file, tree, dataset, metadata.
    ranges
        Entry ranges of the chunks that it is the sum of, in order.
    nbytes
        Size of the file.
    seconds
        What computing it took, summed over the chunks.
    name
        Name of the file.
    """

    work: str
    part: str
    ranges: tuple[Range, ...]
    nbytes: int
    seconds: float
    name: str

    @property
    def entries(self) -> int:
        """Number of entries that it is the sum of."""
        return sum(stop - start for start, stop in self.ranges)


def disjoint(
    results: Iterable[StoredResult], wanted: Mapping[str, Collection[Range]] | None = None
) -> list[StoredResult]:
    """Return results of which no two contain an entry of one part twice, the widest first.

    Parameters
    ----------
    results
        Results of any hosts.
    wanted
        Part to the entry ranges of its chunks. Results that are a sum of
        anything else, as of another cut, are left out; ``None`` takes all.
    """
    chosen = []
    taken: defaultdict[tuple[str, str], list[Range]] = defaultdict(list)
    ranges = None if wanted is None else {part: frozenset(wanted[part]) for part in wanted}
    for result in sorted(results, key=_narrowness):
        if ranges is not None and not ranges.get(result.part, _NONE).issuperset(result.ranges):
            continue
        before = taken[result.work, result.part]
        if any(_overlaps(before, entries) for entries in result.ranges):
            continue
        for entries in result.ranges:
            insort(before, entries)
        chosen.append(result)
    return chosen


def _narrowness(result: StoredResult) -> tuple[int, int, int, str]:
    return -result.entries, len(result.ranges), result.nbytes, result.name


def _overlaps(taken: Sequence[Range], entries: Range) -> bool:
    """Tell whether a range has an entry in common with one of others, which have none."""
    place = bisect_left(taken, entries)
    after = place < len(taken) and taken[place][0] < entries[1]
    return after or (place > 0 and taken[place - 1][1] > entries[0])


class Unusable(Exception):  # noqa: N818
    """A file is no result, or not the one that was wanted; the message says why."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of the result in it, under its keyed hash.

    ``opened``: path to content digest of the files that were opened while it was computed,
    ``None`` for those that were not there.
    """

    work: str
    part: str
    ranges: tuple[Range, ...]
    opened: Mapping[str, str | None]
    seconds: float

    @classmethod
    def checked(
        cls,
        work: str,
        part: str,
        ranges: Iterable[Range],
        opened: Mapping[str, str | None],
        seconds: float,
    ) -> Header:
        """Return a header.

        Raises ``ValueError``: a digest is none, or ranges overlap.
        """
        for name, digest in (("work", work), ("part", part)):
            if not is_digest(digest):
                raise ValueError(f"{name}: expected a hex digest, found {digest!r}")
        found = tuple(sorted((int(start), int(stop)) for start, stop in ranges))
        if not _sound(found):
            raise ValueError(f"ranges: expected entry ranges that don't overlap, found {found}")
        took = seconds if math.isfinite(seconds) else 0.0
        return cls(work, part, found, dict(opened), min(max(round(took, 3), 0.0), 1e9))

    @property
    def name(self) -> str:
        """Name of the file: part, milliseconds, ranges or a digest of them."""
        head, tail = f"{self.part}.{round(self.seconds * 1000)}.", ".result"
        text = _ranges_text(self.ranges)
        if len(head) + len(text) + len(tail) > _LONGEST_NAME:
            text = f"~{_ranges_digest(text)}"
        return f"{head}{text}{tail}"


def is_digest(text: str) -> bool:
    """Tell whether a text is a hex digest, which is safe as a file's name."""
    return _DIGEST.fullmatch(text) is not None


def milliseconds_of(name: str) -> int | None:
    """Return what computing a result took, by its file's name; ``None`` for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match["ms"])


def described(work: str, entry: os.DirEntry[str]) -> StoredResult:
    """Return what a file's name says, or its header, unchecked, where that is too long.

    Raises ``Unusable``: it can't be a result; ``OSError``: it is not there, or can't be read.
    """
    match = _NAME.fullmatch(entry.name)
    found = entry.stat(follow_symlinks=False)
    if match is None or not stat.S_ISREG(found.st_mode):
        raise Unusable("it has no name of a result, or is no plain file")
    if match["ranges"] is None:
        ranges = _claimed_ranges(entry.path, match["digest"])
    else:
        ends = (pair.split("-") for pair in match["ranges"].split("_"))
        ranges = tuple((int(start), int(stop)) for start, stop in ends)
    if not _sound(ranges):
        raise Unusable("its ranges overlap")
    seconds = int(match["ms"]) / 1000
    return StoredResult(work, match["part"], ranges, found.st_size, seconds, entry.name)


def _claimed_ranges(path: str, digest: str) -> tuple[Range, ...]:
    with _opened(path) as file:
        head = file.read(_HEADER_AT)
        length = _PREAMBLE.unpack_from(head)[2] if len(head) == _HEADER_AT else 0
        text = file.read(min(length, _LONGEST_HEADER))
    try:
        ranges = tuple((int(start), int(stop)) for start, stop in json.loads(text)["ranges"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unusable("its header is damaged") from error
    if _ranges_digest(_ranges_text(ranges)) != digest:
        raise Unusable("it is the result of something else under this name")
    return ranges


def _ranges_text(ranges: Iterable[Range]) -> str:
    return "_".join(f"{start}-{stop}" for start, stop in ranges)


def _ranges_digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _sound(ranges: Sequence[Range]) -> bool:
    """Tell whether ranges are in order and have no entry in common."""
    ends = [end for entries in ranges for end in entries]
    ordered = ends == sorted(ends) and all(start < stop for start, stop in ranges)
    return bool(ranges) and ends[0] >= 0 and ordered


def pack(value: Any) -> Pieces:
    """Return a value's pickle and its large buffers, compressed where that is worth it.

    Raises ``ResultNotStoredError``: it can't be pickled.
    """
    buffers = []

    def kept_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _OUTSIDE:
            return True
        buffers.append(view)
        return False

    try:
        stream = cloudpickle.dumps(value, protocol=5, buffer_callback=kept_inside)
    except Exception as error:
        reason = f"its {type(value).__name__} can't be pickled: {type(error).__name__}: {error}"
        raise ResultNotStoredError(reason) from error
    pieces: Pieces = []
    for buffer in (stream, *buffers):
        packed = lz4.frame.compress(buffer)
        smaller = len(packed) < _WORTH * len(buffer)
        pieces.append((packed, len(buffer)) if smaller else (buffer, 0))
    return pieces


def sealed(header: Header, pieces: Pieces, key: bytes) -> list[Any]:
    """Return the bytes of a file, in order."""
    text = json.dumps(
        {
            "work": header.work,
            "part": header.part,
            "ranges": header.ranges,
            "opened": header.opened,
            "seconds": header.seconds,
            "pieces": [[len(stored), raw_bytes] for stored, raw_bytes in pieces],
        },
        separators=(",", ":"),
    ).encode()
    body = [text, *(stored for stored, _ in pieces)]
    preamble = _PREAMBLE.pack(_MAGIC, _VERSION, len(text), _HEADER_AT + sum(map(len, body)))
    return [preamble, _hash(key, [preamble, *body]), *body]


def _hash(key: bytes, pieces: Iterable[Any]) -> bytes:
    digest = hashlib.blake2b(key=key, digest_size=_HASH_BYTES, person=b"hepcache results")
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Verified:
    """The content of a file whose keyed hash was found to be right; only these are unpickled."""

    header: Header
    lengths: tuple[tuple[int, int], ...]
    payload: memoryview

    def value(self) -> Any:
        """Return what is stored.

        Raises ``Unusable``: it can't be unpickled, for want of a module, say.
        """
        pieces, start = [], 0
        for nbytes, raw_bytes in self.lengths:
            piece = self.payload[start : start + nbytes]
            start += nbytes
            # Arrays over these can be written to, as those that were stored.
            pieces.append(
                lz4.frame.decompress(piece, return_bytearray=True)
                if raw_bytes
                else bytearray(piece)
            )
        try:
            return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 - it is the user's own
        except MemoryError:
            raise
        except Exception as error:
            raise Unusable(f"it can't be unpickled: {type(error).__name__}: {error}") from error


def verified(path: str, result: StoredResult, key: bytes, largest_bytes: int) -> Verified:
    """Return the content of a result's file, after its keyed hash was found to be right.

    ``largest_bytes``: what a file may have, so that a planted one does not fill the memory.
    Raises ``Unusable``: it is damaged, planted or the result of something else; ``OSError``: it is
    not there, or can't be read.
    """
    with _opened(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        if nbytes > largest_bytes:
            raise Unusable(f"it has {nbytes} bytes, more than a result may have")
        data = memoryview(file.read())
    length = _header_length(data)
    digest = data[_PREAMBLE.size : _HEADER_AT]
    found = _hash(key, (data[: _PREAMBLE.size], data[_HEADER_AT:]))
    if not hmac.compare_digest(found, digest):
        raise Unusable("its keyed hash is wrong: it is damaged or was planted")
    text = json.loads(bytes(data[_HEADER_AT : _HEADER_AT + length]))
    ranges = tuple((start, stop) for start, stop in text["ranges"])
    header = Header(text["work"], text["part"], ranges, text["opened"], text["seconds"])
    # The user's own files, too, may have been moved.
    if (header.work, header.name, header.ranges) != (result.work, result.name, result.ranges):
        raise Unusable("it is the result of something else under this name")
    lengths = tuple((stored, raw_bytes) for stored, raw_bytes in text["pieces"])
    return Verified(header, lengths, data[_HEADER_AT + length :])


def _header_length(data: memoryview) -> int:
    if len(data) < _HEADER_AT:
        raise Unusable("it is too short")
    magic, version, length, nbytes = _PREAMBLE.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION):
        raise Unusable("it has another format")
    if nbytes != len(data) or length > nbytes - _HEADER_AT:
        raise Unusable(f"it has {len(data)} bytes where {nbytes} were written")
    return int(length)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open a file that is no link, pipe or device."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unusable("it is no plain file")
        yield file
