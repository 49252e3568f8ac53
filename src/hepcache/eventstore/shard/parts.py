"""A shard's items as parts: objects of some megabytes, the same for the same items.

Where a part ends depends on its keys, so that a change in one place moves no other part, and a
backup that follows another one sends only what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from hepcache.errors import StoreError
from hepcache.eventstore.engines.engine import Reader
from hepcache.eventstore.keys import LOCATION
from hepcache.objectstore import open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LEAST_BYTES, _MOST_BYTES = 2 << 20, 32 << 20
_ENDS = 16  # one key in so many may end a part
_COUNT = Struct("<Q")

Item = tuple[bytes, "Buffer"]


class Part(NamedTuple):
    """An object that has items of a shard: its name, its SHA-256, and the bytes."""

    name: str
    digest: str
    items: int
    nbytes: int


def upload(view: Reader, uri: str, directory: str, known: Mapping[str, str]) -> list[Part]:
    """Store all items of a shard as objects; return its parts, in the order of keys.

    ``uri``: the object store. A server that holds the shard opens it itself.
    ``directory``: the names of new objects begin with it.
    ``known``: names of objects that are there, by their SHA-256; they are not stored again.
    """
    store = open_store(uri)
    try:
        found = []
        for items in _cut(view.scan(b"", None)):
            data = packed(items)
            digest = sha256(data).hexdigest()
            name = known.get(digest)
            if name is None:
                name = f"{directory}/{digest}"
                store.put(name, data)
            found.append(Part(name, digest, len(items), len(data)))
        return found
    finally:
        store.close()


def _cut(items: Iterable[tuple[bytes, bytes | memoryview]]) -> Iterator[list[Item]]:
    part: list[Item] = []
    nbytes = 0
    for key, value in items:
        if key == LOCATION:  # where a server's copy is belongs to the server
            continue
        if part and nbytes + len(value) > _MOST_BYTES:
            yield part
            part, nbytes = [], 0
        part.append((key, value))
        nbytes += len(key) + len(value)
        if nbytes >= _LEAST_BYTES and xxhash.xxh3_64_intdigest(key) % _ENDS == 0:
            yield part
            part, nbytes = [], 0
    if part:
        yield part


def packed(items: list[Item]) -> bytes:
    """Return items as one object.

    >>> unpacked(packed([(b"a", b"one"), (b"b", b"")]))
    [(b'a', b'one'), (b'b', b'')]
    """
    sizes = np.array([(len(key), memoryview(value).nbytes) for key, value in items], "<u8")
    keys, values = zip(*items, strict=True)
    return b"".join([_COUNT.pack(len(items)), sizes.tobytes(), *keys, *values])


def unpacked(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the items of an object.

    Raises ``StoreError``: it is none that :func:`packed` made.
    """
    try:
        (count,) = _COUNT.unpack_from(data)
        sizes = np.frombuffer(data, "<u8", 2 * count, _COUNT.size).reshape(-1, 2)
    except (error, ValueError) as problem:
        raise StoreError("part of a backup", f"it is no part: {problem}") from problem
    begin = _COUNT.size + sizes.nbytes
    ends = begin + np.cumsum(np.concatenate([sizes[:, 0], sizes[:, 1]]))
    if count and ends[-1] != len(data):
        raise StoreError("part of a backup", f"it has {len(data)} bytes, not {ends[-1]}")
    pieces = [data[low:high] for low, high in zip([begin, *ends[:-1]], ends, strict=True)]
    return list(zip(pieces[:count], pieces[count:], strict=True))
