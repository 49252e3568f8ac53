"""ROOT's compressed blocks: nine bytes of header, then up to 16 MiB of data.

Layout: RNTuple Binary Format Specification 1.0, "Compression Block".
"""

from __future__ import annotations

import lzma
import struct
import threading
import zlib
from dataclasses import dataclass

import cramjam
import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError

_HEAD = struct.Struct("<2sB3s3s")
_MOST = (1 << 24) - 1
_ALGORITHMS = {"zlib": 1, "lzma": 2, "lz4": 4, "zstd": 5}
_ERRORS = (
    OSError,
    cramjam.DecompressionError,
    lzma.LZMAError,
    struct.error,
    zlib.error,
    zstandard.ZstdError,
)
_SEARCHING = 6  # zstd's level from which on all that repeats is looked for
_threads = threading.local()


@dataclass(frozen=True, slots=True)
class Compression:
    """How pages and envelopes are compressed."""

    algorithm: str  # "zstd", "lz4", "zlib", "lzma" or "none"
    level: int  # 1 (fast) to 9 (small), as in ROOT

    @property
    def settings(self) -> int:
        """ROOT's number: ``algorithm * 100 + level``, 0 for none."""
        return _ALGORITHMS[self.algorithm] * 100 + self.level if self.algorithm != "none" else 0


ENVELOPES = Compression("zstd", 3)
"""How envelopes are compressed."""


def parse_compression(text: str) -> Compression:
    """Return what ``"zstd"``, ``"zstd:5"``, ``"lz4"`` or ``"none"`` mean.

    Raises ``ConfigurationError``: the text means nothing.

    >>> parse_compression("zstd:3").settings, parse_compression("none").settings
    (503, 0)
    """
    algorithm, _, level = text.partition(":")
    known = "none, zstd, lz4, zlib or lzma, perhaps with a colon and a level from 1 to 9"
    if algorithm == "none" and not level:
        return Compression("none", 0)
    if algorithm not in _ALGORITHMS or (level and level not in "123456789"):
        raise ConfigurationError("compression", known, text)
    return Compression(algorithm, int(level or {"zstd": 1, "lz4": 4}.get(algorithm, 5)))


def compressed(
    data: memoryview | bytes, how: Compression, *, split: bool = False
) -> bytes | memoryview:
    """Return data in blocks; as it is where blocks would not be smaller.

    ``split`` says that it is numbers, all first bytes before all second ones.
    """
    view = memoryview(data).cast("B")
    if how.algorithm == "none" or not len(view):
        return view
    parts: list[bytes] = []
    total = 0
    for start in range(0, len(view), _MOST):
        plain = view[start : start + _MOST]
        tag, version, block = _compressed(plain, how, split)
        if len(block) > _MOST:
            return view
        sizes = len(block).to_bytes(3, "little"), len(plain).to_bytes(3, "little")
        parts += [_HEAD.pack(tag, version, *sizes), block]
        total += _HEAD.size + len(block)
        # A reader takes equal sizes for data that is not compressed.
        if total >= len(view):
            return view
    return b"".join(parts)


def decompressed(data: memoryview, length: int) -> memoryview:
    """Return the ``length`` bytes that were compressed; a view where they were not.

    Raises ValueError as :func:`decompress_into` does.
    """
    if len(data) == length:
        return data
    out = np.empty(length, np.uint8)
    decompress_into(data, out)
    return out.data


def decompress_into(data: memoryview, out: NDArray[np.uint8]) -> None:
    """Fill ``out``, shape ``(n_bytes,)``, with the bytes that were compressed.

    Raises ValueError where the blocks are damaged, or have another number of bytes.
    """
    position = total = 0
    try:
        while total < len(out):
            tag, version, packed, plain = _HEAD.unpack_from(data, position)
            position += _HEAD.size
            size, wanted = int.from_bytes(packed, "little"), int.from_bytes(plain, "little")
            block = data[position : position + size]
            target = out[total : total + wanted]
            if len(block) != size:
                raise ValueError("a compressed block ends behind its page")
            if len(target) != wanted:
                raise ValueError(f"expected {len(out)} bytes, there are more")
            if tag == b"ZS":
                _unpack_zstd(block, target)
            else:
                part = np.frombuffer(_decompressed(tag, version, block, wanted), np.uint8)
                if len(part) != wanted:
                    raise ValueError(f"a block of {wanted} bytes was decompressed to {len(part)}")
                target[:] = part
            position += size
            total += wanted
    except _ERRORS as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow the last block")


def _unpack_zstd(block: memoryview, target: NDArray[np.uint8]) -> None:
    """Decompress straight to where the bytes go: new memory costs as much as a third of it all."""
    if not hasattr(_threads, "zstd"):
        _threads.zstd = zstandard.ZstdDecompressor()
    with _threads.zstd.stream_reader(block) as stream:
        done = 0
        while done < len(target) and (more := stream.readinto(target[done:])):
            done += more
        if done != len(target) or stream.read(1):
            raise ValueError(f"a block of {len(target)} bytes was decompressed to other {done}")


def _compressed(plain: memoryview, how: Compression, split: bool) -> tuple[bytes, int, bytes]:
    if how.algorithm == "zstd":
        level = 2 * how.level  # as ROOT maps its nine levels
        if not split:
            return b"ZS", 1, zstandard.ZstdCompressor(level=level).compress(plain)
        # What repeats by chance in the digits of numbers is short: using it makes the data
        # larger, and reading them slower by a third. So little is remembered, unless as small
        # as possible is asked for.
        tables = {} if level >= _SEARCHING else {"hash_log": 8, "chain_log": 8}
        chosen = zstandard.ZstdCompressionParameters.from_level(
            level, source_size=len(plain), min_match=7, **tables
        )
        return b"ZS", 1, zstandard.ZstdCompressor(compression_params=chosen).compress(plain)
    if how.algorithm == "zlib":
        return b"ZL", 8, zlib.compress(plain, how.level)
    if how.algorithm == "lzma":
        return b"XZ", 0, lzma.compress(plain, preset=how.level)
    if how.level < 4:
        packed = cramjam.lz4.compress_block(plain, mode="fast", store_size=False)
    else:
        packed = cramjam.lz4.compress_block(
            plain, mode="high_compression", compression=how.level, store_size=False
        )
    block = bytes(packed)
    return b"L4", 1, xxhash.xxh64_intdigest(block).to_bytes(8, "big") + block


def _decompressed(tag: bytes, version: int, block: memoryview, length: int) -> bytes | memoryview:
    if tag == b"ZL":
        return zlib.decompress(block, bufsize=length)
    if tag == b"CS":
        return zlib.decompress(block, wbits=-15, bufsize=length)
    if tag == b"XZ":
        return lzma.decompress(block)
    if tag == b"L4":
        if xxhash.xxh64_intdigest(block[8:]) != int.from_bytes(block[:8], "big"):
            raise ValueError("an LZ4 block's checksum is wrong")
        return memoryview(cramjam.lz4.decompress_block(block[8:], output_len=length))
    raise ValueError(f"unknown compression {tag!r}, version {version}")
