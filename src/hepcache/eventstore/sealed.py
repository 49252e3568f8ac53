"""Values with a checksum, so that a damaged one is an error and never wrong data."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from hepcache.errors import StoreError

__all__ = ["SEAL_BYTES", "seal", "unseal", "unseal_once"]

SEAL_BYTES = 8
_VERIFIED_LIMIT = 65536

_verified: set[bytes] = set()


def seal(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return the parts joined, with their XXH3 checksum at the end."""
    digest = xxhash.xxh3_64()
    pieces = []
    for part in parts:
        digest.update(part)
        pieces.append(part)
    pieces.append(digest.digest())
    return b"".join(pieces)


def unseal(key: bytes, value: memoryview | bytes) -> memoryview:
    """Return what :func:`seal` joined, as a view.

    Raises
    ------
    StoreError
        The checksum is another: the value is damaged.
    """
    view = memoryview(value)
    payload = view[:-SEAL_BYTES]
    if xxhash.xxh3_64_digest(payload) != view[-SEAL_BYTES:]:
        raise StoreError(
            f"key {key.hex()}", "the value is damaged; restore it, or ingest its subrun anew"
        )
    return payload


def unseal_once(key: bytes, value: memoryview | bytes) -> memoryview:
    """Return as :func:`unseal` does, but look at a checksum once in this process."""
    seen = key + value[-SEAL_BYTES:]
    if seen in _verified:
        return memoryview(value)[:-SEAL_BYTES]
    data = unseal(key, value)
    if len(_verified) >= _VERIFIED_LIMIT:
        _verified.clear()
    _verified.add(seen)
    return data
