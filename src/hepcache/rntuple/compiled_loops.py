"""Loops over the numbers of a page, compiled; all release the interpreter.

Importing this module takes a second; the first call on a machine compiles for
some more, and the result is kept on disk.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@njit(**_OPTIONS)
def unsplit(packed: Any, out: Any) -> None:
    """Put the bytes of unsigned integers together: all first ones come first."""
    n, size = len(out), out.itemsize
    if size == 2:
        a, b = packed[:n], packed[n : 2 * n]
        for i in range(n):
            out[i] = a[i] | (b[i] << 8)
    elif size == 4:
        a, b, c, d = packed[:n], packed[n : 2 * n], packed[2 * n : 3 * n], packed[3 * n : 4 * n]
        for i in range(n):
            out[i] = a[i] | (b[i] << 8) | (c[i] << 16) | (d[i] << 24)
    else:
        a, b, c, d = packed[:n], packed[n : 2 * n], packed[2 * n : 3 * n], packed[3 * n : 4 * n]
        e, f, g, h = (
            packed[4 * n : 5 * n],
            packed[5 * n : 6 * n],
            packed[6 * n : 7 * n],
            packed[7 * n : 8 * n],
        )
        for i in range(n):
            low = a[i] | (b[i] << 8) | (c[i] << 16) | (d[i] << 24)
            high = e[i] | (f[i] << 8) | (g[i] << 16) | (h[i] << 24)
            out[i] = (low & 0xFFFFFFFF) | (high << 32)


@njit(**_OPTIONS)
def split(values: Any, out: Any) -> None:
    """Write the first bytes of all unsigned integers, then all second ones."""
    n, size = len(values), values.itemsize
    for byte in range(size):
        part, shift = out[byte * n : (byte + 1) * n], 8 * byte
        for i in range(n):
            part[i] = (values[i] >> shift) & 0xFF


@njit(**_OPTIONS)
def unzigzag(values: Any) -> None:
    """Turn 0, 1, 2, 3 ... into 0, -1, 1, -2 ..., in place; unsigned of any size."""
    for i in range(len(values)):
        u = values[i]
        values[i] = (u >> 1) ^ (~(u & 1) + 1)


@njit(**_OPTIONS)
def split_zigzag(values: Any) -> None:
    """Do the reverse of :func:`unzigzag`, in place."""
    top = 8 * values.itemsize - 1
    for i in range(len(values)):
        u = values[i]
        values[i] = (u << 1) ^ (~(u >> top) + 1)
