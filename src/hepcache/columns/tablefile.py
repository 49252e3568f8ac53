"""How a branch table is kept with a host's columns, and found again.

A table is one blob: numbers in little-endian order behind a JSON head,
compressed with zstd; the blob store adds a checksum. It is only believed
where the tree's key in the file is the one that it was made of.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import xxhash
import zstandard

from hepcache.columns.table import BranchList, Table, table_of
from hepcache.fileset.ttree import NotPlainError, read_plain_tree

__all__ = ["BlobStore", "branches_digest", "packed", "tree_table", "unpacked"]

_KIND = "branch-tables-v1"
_HEAD = struct.Struct("<I")


class BlobStore(Protocol):
    """Where small metadata is kept, such as the cache."""

    def blob_get(self, kind: str, name: str) -> bytes | None:
        """Return what was kept, or ``None``."""
        ...

    def blob_put(self, kind: str, name: str, data: bytes) -> bool:
        """Keep something; tell whether that was possible."""
        ...


def tree_table(directory: Any, tree: str, content: str, store: BlobStore | None) -> Table | None:
    """Return the table of a tree, or ``None`` where it has none.

    Parameters
    ----------
    directory
        The file, open with uproot.
    tree
        Name of the tree in it.
    content
        What tells the file's content from all others.
    store
        Where tables are kept.
    """
    key = directory.key(tree)
    if key.fClassName != "TTree":
        return None
    mark = [key.fSeekKey, key.fNbytes, key.fObjlen, str(key.fDatime)]
    name = f"{content}-{quote(tree, safe='')}"
    kept = None if store is None else store.blob_get(_KIND, name)
    table = None if kept is None else unpacked(kept, mark)
    if table is not None:
        return table
    chunk, _ = key.get_uncompressed_chunk_cursor()
    with suppress(NotPlainError):
        table = table_of(read_plain_tree(chunk.raw_data.tobytes(), key.fKeylen))
    if table is not None and store is not None:
        store.blob_put(_KIND, name, packed(table, mark))
    return table


def branches_digest(listed: BranchList) -> str:
    """Return what tells a branch list from all others."""
    return xxhash.xxh3_128_hexdigest(json.dumps(_listed(listed)).encode())


def packed(table: Table, mark: list[Any]) -> bytes:
    """Return a table as bytes.

    Parameters
    ----------
    table
        The table.
    mark
        JSON-ready values that change when the tree in the file does.
    """
    head = json.dumps({
        "mark": mark,
        "entries": table.num_entries,
        "branches": _listed(table.branches),
        "bounds": [len(one) for one in table.bounds],
        "bound_of": table.bound_of,
        "baskets": len(table.seeks),
    }).encode()  # fmt: skip
    numbers = np.concatenate([*table.bounds, table.nbytes, table.seeks]).astype("<i8")
    return zstandard.compress(_HEAD.pack(len(head)) + head + numbers.tobytes())


def unpacked(data: bytes, mark: list[Any]) -> Table | None:
    """Return a table, or ``None`` where the bytes are none or of another tree.

    Parameters
    ----------
    data
        What :func:`packed` returned.
    mark
        As it was given there.
    """
    try:
        plain = zstandard.decompress(data)
        (length,) = _HEAD.unpack_from(plain)
        head = json.loads(plain[_HEAD.size : _HEAD.size + length])
        numbers = np.frombuffer(plain, "<i8", offset=_HEAD.size + length).astype(np.int64)
        *bounds, nbytes, seeks = np.split(
            numbers, np.cumsum([*head["bounds"], head["baskets"]], dtype=np.int64)
        )
        if head["mark"] != mark or len(nbytes) != len(seeks):
            return None
        listed = BranchList(head["branches"][0], *map(tuple, head["branches"][1:]))
        table = Table(
            head["entries"], listed, tuple(bounds), tuple(head["bound_of"]), nbytes, seeks
        )
        return table if table.first_baskets[-1] == len(seeks) else None
    except (zstandard.ZstdError, struct.error, ValueError, KeyError, TypeError, IndexError):
        return None


def _listed(listed: BranchList) -> list[Any]:
    return [listed.title, listed.names, listed.titles, listed.types, listed.counters]
