"""Digests of graphs: what objects say of themselves, and which others they lead to.

Objects lead to one another in circles: a class to its methods, those to the class. Two
graphs have one digest where nothing that can be reached tells them apart (they are
bisimilar), in whatever order and under however many copies they were found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import xxhash

__all__ = ["Graph", "Part", "digest_of", "literal"]

Part = bytes | int | frozenset["bytes | int"]
"""What a node says: bytes, the number of another node, or a set of both without order."""

_SIZE = 16
_LARGE = 1 << 16
# What was walked before, chunk after chunk, mostly says the same.
_MOST_DIGESTS = 64
_digests: dict[tuple[int, tuple[tuple[Part, ...], ...]], bytes] = {}


def digest_of(data: bytes) -> bytes:
    """Return 16 bytes that stand for others."""
    return hashlib.blake2b(data, digest_size=_SIZE).digest()


def literal(kind: str, data: bytes | memoryview) -> bytes:
    """Return a kind of value with its bytes; large ones are hashed, at the memory's speed."""
    if len(data) >= _LARGE:
        return b"%b hashed %d:%b" % (kind.encode(), len(data), xxhash.xxh3_128_digest(data))
    return b"%b:%b" % (kind.encode(), bytes(data))


class Graph:
    """Nodes in the order in which they were found; each says its parts."""

    def __init__(self) -> None:
        self.parts: list[list[Part]] = []

    def add(self) -> int:
        """Return the number of a new node, which says nothing yet."""
        self.parts.append([])
        return len(self.parts) - 1

    def digest(self, root: int) -> bytes:
        """Return the digest of a node; all others must be reachable from it."""
        said = root, tuple(map(tuple, self.parts))
        found = _digests.get(said)
        if found is None:
            if len(_digests) >= _MOST_DIGESTS:
                _digests.clear()
            found = _digests[said] = self._digest(root)
        return found

    def _digest(self, root: int) -> bytes:
        known = self._without_circles()
        if root in known:
            return known[root]
        rest = [node for node in range(len(self.parts)) if node not in known]
        # Nodes are told apart by what is a step farther away, until that tells no more apart.
        blank = dict.fromkeys(rest, b"")
        colours = {node: self._hash(node, known, blank) for node in rest}
        while True:
            finer = {node: self._hash(node, known, colours) for node in rest}
            if len(set(finer.values())) == len(set(colours.values())):
                break
            colours = finer
        # Distant nodes don't show in the root's colour: all that is reached is named.
        edges = sorted({colours[node] + finer[node] for node in rest})
        return digest_of(b"circle" + colours[root] + b"".join(edges))

    def _without_circles(self) -> dict[int, bytes]:
        """Return the digests of all nodes that lead to no circle, from the leaves on."""
        users: list[list[int]] = [[] for _ in self.parts]
        missing = []
        for node, parts in enumerate(self.parts):
            others = set(_nodes(parts))
            missing.append(len(others))
            for other in others:
                users[other].append(node)
        ready = [node for node, count in enumerate(missing) if not count]
        known: dict[int, bytes] = {}
        while ready:
            node = ready.pop()
            known[node] = self._hash(node, known, {})
            for user in users[node]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        return known

    def _hash(self, node: int, known: Mapping[int, bytes], others: Mapping[int, bytes]) -> bytes:
        def said(part: bytes | int) -> bytes:
            if isinstance(part, bytes):
                return b"L%d:%b" % (len(part), part)
            found = known.get(part)
            return b"N" + (others[part] if found is None else found)

        pieces = []
        for part in self.parts[node]:
            if isinstance(part, frozenset):
                members = sorted({digest_of(said(member)) for member in part})
                pieces.append(b"S%d:%b" % (len(members), b"".join(members)))
            else:
                pieces.append(said(part))
        return digest_of(b"".join(pieces))


def _nodes(parts: Iterable[Part]) -> Iterable[int]:
    for part in parts:
        if isinstance(part, int):
            yield part
        elif isinstance(part, frozenset):
            yield from (member for member in part if isinstance(member, int))
