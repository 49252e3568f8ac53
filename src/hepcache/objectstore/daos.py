"""Ntuples in a container of DAOS.

Two schemes of keys are used side by side:

- ROOT's own, see :mod:`hepcache.objectstore.rootkeys`, for ntuples with an
  object per cluster, a distribution key per column and an attribute key per
  page (mapping ``cluster_column``), which is what ROOT writes and reads. Names
  that begin with ``.root/`` stand for its keys; the name ``""`` for anchor,
  header and footer together.
- One of ours for all other names, which the other mappings and the journal of
  a put need: they are distribution keys of one DAOS object, spread over its
  targets by the hash of the key. A key's bytes are an array of one-byte
  records under the attribute key ``data``, so that ranges can be fetched, and
  their number is the single value ``size``, which is written in the same
  operation. DAOS reads what was never written as zeros; the size is fetched
  with every range, so that this can't be taken for data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, ObjectMissingError
from hepcache.objectstore.container import Container, Identity, array, single
from hepcache.objectstore.rootanchor import RootKeys
from hepcache.objectstore.rootkeys import METADATA, PREFIX, key_named
from hepcache.objectstore.rootvalues import RootValues, checked
from hepcache.objectstore.store import Request, check_prefix, join_name
from hepcache.objectstore.together import together

if TYPE_CHECKING:
    from typing_extensions import Buffer

    _Buffers = list[Buffer]  # in the class, ``list`` is a method

__all__ = ["DaosStore", "open_uri"]

_HASHED = 0  # DAOS_OT_MULTI_HASHED
_OBJECT = 0x68657063  # "hepc": the object of a container that has names as its keys


class DaosStore:
    """One place in a container.

    Parameters
    ----------
    uri
        ``daos://pool/container/name``.
    pool, container, base
        Labels of pool and container, and the key of the URI in it, which is
        the ntuple's name where ROOT's keys are used. A container that does
        not exist is made.
    object_class
        DAOS's object class: how many replicas (``RP_2GX``) or parity parts
        (``EC_2P1GX``), over how many targets (``S1``, ``SX``). It belongs to
        the objects' identities: readers must say the same, unless ROOT's anchor
        is there, which tells it. ``None`` for what that says, or ``SX``.
    concurrency
        Operations that one vector read has under way at most.

    Attributes
    ----------
    root_keys
        How ROOT finds the ntuple.

    Raises
    ------
    ConfigurationError
        DAOS doesn't know the class, or the ntuple that is there has another.
    """

    limit = 1 << 30

    def __init__(
        self,
        uri: str,
        pool: str,
        container: str,
        base: str,
        object_class: str | None,
        concurrency: int,
    ) -> None:
        self.uri, self._base, self._concurrency = uri, base, concurrency
        self._box = Container(uri, pool, container)
        self._values = RootValues(uri, self._box, base, object_class)
        there = self._values.object_class
        if object_class not in (None, there):
            expected = f"{there}, as the ntuple at {uri} has it, or another URI"
            raise ConfigurationError("object_class", expected, object_class)
        self.root_keys = RootKeys(base, there)
        self._object = Identity(0, _OBJECT, _HASHED, self._box.object_class(there))

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole, in one operation."""
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        if (key := key_named(name)) is not None:
            self._values.put([key], [flat])
        elif not name and self._values.put_anchor(flat.tobytes()):
            # What another mapping may have left is hidden from now on.
            self._box.punch("", self._object, self._key(""))
        else:
            size = np.array([flat.nbytes], "<u8").view(np.uint8)
            values = [single(b"size", size)]
            if flat.nbytes:
                values.append(array(b"data", [0], [flat]))
            self._box.update(name, self._object, self._key(name), values)
            if not name:
                self._values.remove(METADATA)

    put_anchor = put

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        if (key := key_named(name)) is not None:
            return self._values.whole([key])[0].tobytes()
        if not name and self._values.anchored():
            return b"".join(one.tobytes() for one in self._values.whole(METADATA))
        return bytes(self._ranges(name, [0], [self._fetch(name, [], [])])[0])

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, in one operation."""
        pairs = zip(starts, lengths, strict=True)
        return self._read([Request(name, start, length) for start, length in pairs])

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects, one operation for each distribution key."""
        groups: dict[object, list[int]] = {}
        for index, one in enumerate(requests):
            key = key_named(one.name)
            groups.setdefault(key[:2] if key else one.name, []).append(index)

        async def group(indexes: list[int]) -> list[Buffer]:
            return await asyncio.to_thread(self._read, [requests[one] for one in indexes])

        answers = await together(group, list(groups.values()), self._concurrency)
        found: list[Buffer] = [b""] * len(requests)
        for indexes, answer in zip(groups.values(), answers, strict=True):
            for index, data in zip(indexes, answer, strict=True):
                found[index] = data
        return found

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects; DAOS looks through all keys of the container."""
        check_prefix(prefix)
        if prefix == PREFIX:
            yield from self._values.list()
        anchored = not prefix and self._values.anchored()
        if anchored:
            yield "", sum(self._values.sizes(METADATA))
        root = self._base if prefix.startswith(".") else f"{self._base}/"
        for data in self._box.keys(self._object):
            key = data.decode(errors="replace")
            if not prefix and key == self._base and not anchored:
                name = ""
            elif key.startswith(root + prefix):
                name = key.removeprefix(root)
            else:
                continue
            try:
                yield name, self._fetch(name, [], [])
            except ObjectMissingError:
                continue

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects."""
        keys = {name: key_named(name) for name in names}
        for name, key in keys.items():
            if key is None:
                self._box.punch(name, self._object, self._key(name))
        # What ROOT's anchor hides has gone before it, so that nobody ever sees it.
        self._values.remove(METADATA if "" in keys else ())
        self._values.remove(key for key in keys.values() if key is not None)

    def close(self) -> None:
        """Close the container and the pool."""
        self._box.close()

    def _key(self, name: str) -> bytes:
        return join_name(self._base, name).encode()

    def _read(self, requests: Sequence[Request]) -> _Buffers:
        """Return ranges of objects that have a distribution key in common."""
        if not requests:
            return []
        name = requests[0].name
        keys = [key for one in requests if (key := key_named(one.name)) is not None]
        if keys:
            return self._values.read(keys, requests)
        if name or not self._values.anchored():
            return self._ranges(
                name, [one.start for one in requests], [one.length for one in requests]
            )
        whole = memoryview(self.get(""))
        for one in requests:
            checked(self.uri, one, len(whole))
        return [whole[one.start : one.start + one.length] for one in requests]

    def _ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> _Buffers:
        buffers = [np.empty(length, np.uint8) for length in lengths]
        size = self._fetch(name, starts, buffers)
        for start, length in zip(starts, lengths, strict=True):
            checked(self.uri, Request(name, start, length), size)
        return [buffer.data for buffer in buffers]

    def _fetch(
        self, name: str, starts: Sequence[int], buffers: Sequence[NDArray[np.uint8]]
    ) -> int:
        """Fill buffers from their first bytes on, and return the object's size."""
        size = np.empty(8, np.uint8)
        values = [single(b"size", size)]
        pairs = [pair for pair in zip(starts, buffers, strict=True) if pair[1].nbytes]
        if pairs:
            values.append(array(b"data", *zip(*pairs, strict=True)))
        self._box.fetch(name, self._object, self._key(name), values)
        return int(size.view("<u8")[0])


def open_uri(
    uri: str,
    parts: SplitResult,
    object_class: str | None = None,
    concurrency: int | str = 32,
) -> DaosStore:
    """Open ``daos://pool/container/name``; see :class:`DaosStore` for the options.

    Raises
    ------
    ConfigurationError
        The URI lacks a pool or a container.
    ImportError
        libdaos is not installed.
    """
    container, _, base = unquote(parts.path).strip("/").partition("/")
    if not parts.netloc or not container:
        raise ConfigurationError("URI", "daos://, a pool and a container in it", uri)
    base = base or "ntuple"
    return DaosStore(uri, parts.netloc, container, base, object_class, int(concurrency))
