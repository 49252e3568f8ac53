"""Light codecs of stored buffers: Blosc frames, a bit shuffle before LZ4 or Zstandard.

NanoAOD columns are counters, identifiers and floats of truncated mantissa:
after a bit shuffle they shrink two- to eightfold and decode at some GB/s.
"""

from __future__ import annotations

import struct
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hepcache.cache.disk.format import Damage, ForeignFile

__all__ = ["BLOSC", "RAW", "Codec", "CodecName", "compress", "decompress"]

Codec = Literal["raw", "lz4", "zstd"]
"""How a buffer is kept."""

CodecName = Literal["auto", "raw", "lz4", "zstd"]
"""What may be asked for; ``auto`` chooses by :mod:`hepcache.cache.room.economy`."""

RAW, BLOSC = 0, 1
"""Numbers in the file format. A Blosc frame says itself what is in it."""

_FRAME = struct.Struct("<4xI4xI")  # of Blosc's own 16 bytes: decoded size, size of the frame
_LEVEL = 1
_BIT_SHUFFLE = 2


def compress(array: NDArray[Any], codec: Codec) -> NDArray[np.uint8] | None:
    """Return a Blosc frame of an array, or ``None`` where that would save nothing.

    Parameters
    ----------
    array
        C-contiguous, of a plain numeric type.
    codec
        ``"lz4"`` or ``"zstd"``; ``"raw"`` gives ``None``.
    """
    # Blosc's frames hold less than 2 GiB; a column of a segment has a few MB.
    if codec == "raw" or not 0 < array.nbytes < 1 << 31:
        return None
    plain = array.view(f"u{array.dtype.itemsize}") if array.dtype.kind in "mM" else array
    frame = np.frombuffer(_blosc().compress(plain, codec.encode(), _LEVEL, _BIT_SHUFFLE), np.uint8)
    return frame if frame.nbytes < 0.9 * array.nbytes else None


def decompress(payload: NDArray[np.uint8], codec: int, raw_bytes: int) -> NDArray[np.uint8]:
    """Return the decoded bytes of a payload.

    Parameters
    ----------
    payload
        What is stored, without padding; its checksum has been compared.
    codec
        Its number.
    raw_bytes
        How many bytes it decodes to.

    Returns
    -------
    numpy.ndarray
        Shape ``(raw_bytes,)``, dtype ``uint8``.

    Raises
    ------
    ForeignFile
        A later version's codec.
    Damage
        The frame contradicts its record.
    """
    if codec != BLOSC:
        raise ForeignFile(f"codec {codec}")
    # Blosc itself reads as far as the frame says, so look before.
    if payload.nbytes < _FRAME.size or _FRAME.unpack_from(payload.data) != (
        raw_bytes,
        payload.nbytes,
    ):
        raise Damage("a frame contradicts the table of buffers")
    out = np.empty(raw_bytes, np.uint8)
    try:
        _blosc().decompress(payload, out)
    except RuntimeError as error:
        raise Damage(f"a frame can't be decoded: {error}") from error
    return out


def _blosc() -> Any:
    # Half a second, which a cache of raw columns need not pay.
    from numcodecs import blosc

    return blosc
