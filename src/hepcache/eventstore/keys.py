"""The keys of the event store, and the shard on which each lives.

A key is one byte that names the database, the container's key (the dataset's
UUID followed by big-endian run, subrun and event numbers) and what the database
adds. Bytes compare as the numbers do, so one ordered scan lists a container.
Keys, and with them the shard, never depend on an address: a server that comes
back elsewhere serves the same shard (the model is that of HEPnOS, Paterno et
al., "HEPnOS: a specialized data service for high energy physics analysis", 2023,
section III).
"""

from __future__ import annotations

import operator
import unicodedata
from functools import lru_cache
from typing import Final, SupportsIndex

import xxhash

from hepcache.errors import ConfigurationError

__all__ = [
    "COLUMN",
    "DATASET",
    "EVENTS",
    "LARGEST_NUMBER",
    "META",
    "ROOT",
    "ROW",
    "RUN",
    "SCHEMA",
    "SUBRUN",
    "VALUE",
    "after",
    "check_name",
    "check_number",
    "name_bytes",
    "number_bytes",
    "shard_of",
    "split_path",
]

# The databases: first byte of every key.
DATASET: Final = b"d"  # parent's UUID, name -> UUID
RUN: Final = b"r"  # UUID, run -> nothing
SUBRUN: Final = b"s"  # UUID, run, subrun -> nothing
EVENTS: Final = b"e"  # subrun key, first event -> numbers of the events of a leaf
VALUE: Final = b"v"  # level, container key, label, type -> a product of a container
COLUMN: Final = b"c"  # subrun key, label, type, column, first event -> a leaf of one column
ROW: Final = b"o"  # subrun key, label, type, event -> one product, not yet in a leaf
SCHEMA: Final = b"t"  # type identity -> its description
META: Final = b"m"

ROOT: Final = bytes(16)  # the parent of the top datasets
LARGEST_NUMBER: Final = 2**64 - 1
_LONGEST_NAME_BYTES = 255  # keeps every key below the 511 bytes that LMDB allows


def check_number(number: SupportsIndex, what: str = "number") -> int:
    """Return a run, subrun or event number as an ``int``.

    Raises
    ------
    ConfigurationError
        It is no integer, or not in 0..2**64-1.
    """
    if type(number) is int and 0 <= number <= LARGEST_NUMBER:
        return number
    if isinstance(number, bool):
        raise ConfigurationError(what, "an integer", number)
    try:
        value = operator.index(number)
    except TypeError:
        raise ConfigurationError(what, "an integer", number) from None
    if not 0 <= value <= LARGEST_NUMBER:
        raise ConfigurationError(what, "an integer in 0..2**64-1", value)
    return value


def number_bytes(number: SupportsIndex, what: str = "number") -> bytes:
    """Return a number as it stands in keys: 8 bytes, big-endian."""
    return check_number(number, what).to_bytes(8, "big")


def check_name(name: str, what: str = "name") -> str:
    """Return a name of a dataset or a label of a product.

    Raises
    ------
    ConfigurationError
        It is empty, longer than 255 bytes, no valid Unicode, or contains ``/``
        or a control character.
    """
    expected = "UTF-8 text of 1 to 255 bytes without '/' and control characters"
    if not isinstance(name, str) or not name or "/" in name:
        raise ConfigurationError(what, expected, name)
    if not name.isprintable() and any(unicodedata.category(one) == "Cc" for one in name):
        raise ConfigurationError(what, expected, name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(what, expected, name) from None
    if size > _LONGEST_NAME_BYTES:
        raise ConfigurationError(what, expected, name)
    return name


@lru_cache(4096)
def name_bytes(name: str, what: str = "name") -> bytes:
    """Return a checked name as it stands in keys."""
    return check_name(name, what).encode()


def split_path(path: str) -> list[str]:
    """Return the checked components of a dataset's path.

    Examples
    --------
    >>> split_path("nova/prod5")
    ['nova', 'prod5']
    """
    if not isinstance(path, str):
        raise ConfigurationError("dataset", "a path such as 'nova/prod5'", path)
    return [check_name(part, "dataset") for part in path.strip("/").split("/")]


def shard_of(container: bytes, number_of_shards: int) -> int:
    """Return the shard of what a container lists, and of its products.

    Parameters
    ----------
    container
        The container's key; for events and their products the subrun's.
    number_of_shards
        How many shards the store was made with; it never changes.
    """
    return int(xxhash.xxh3_64_intdigest(container) % number_of_shards)


def after(prefix: bytes) -> bytes | None:
    """Return the smallest key above all that begin with a prefix; None if there is none.

    Examples
    --------
    >>> after(b"ab")
    b'ac'
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
