"""Compression of ROOT files, written as ``algorithm:level``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import uproot

from hepcache.errors import ConfigurationError

__all__ = ["ALGORITHMS", "parse_compression"]

# Highest level of each, and the level ROOT itself takes when none is named.
_LEVELS = {"zstd": (22, 5), "zlib": (9, 1), "lz4": (12, 4), "lzma": (9, 7)}
_CLASSES = {"zstd": uproot.ZSTD, "zlib": uproot.ZLIB, "lz4": uproot.LZ4, "lzma": uproot.LZMA}

ALGORITHMS = MappingProxyType({name: top for name, (top, _) in _LEVELS.items()})
"""Algorithm to its highest level; the lowest is 1."""


def parse_compression(spec: str) -> Any:
    """Return what uproot calls a compression.

    Parameters
    ----------
    spec
        ``zstd:10``, ``zlib:1``, ``lz4:4``, ``lzma:7``, an algorithm alone (with
        ROOT's own default level), or ``none``.

    Returns
    -------
    uproot.compression.Compression or None
        ``None`` means uncompressed.

    Raises
    ------
    ConfigurationError
        No such algorithm, or no such level of it.

    Examples
    --------
    >>> parse_compression("zstd:10")
    ZSTD(10)
    >>> parse_compression("none") is None
    True
    """
    algorithm, colon, level = spec.strip().lower().partition(":")
    if algorithm == "none" and not colon:
        return None
    if algorithm not in _LEVELS:
        expected = f"{', '.join(_LEVELS)} (with a level, such as zstd:10) or none"
        raise ConfigurationError("compression", expected, spec)
    top, default = _LEVELS[algorithm]
    if not colon:
        return _CLASSES[algorithm](default)
    if not (level.isascii() and level.isdigit() and 1 <= int(level) <= top):
        raise ConfigurationError("compression", f"{algorithm}:1 to {algorithm}:{top}", spec)
    return _CLASSES[algorithm](int(level))
