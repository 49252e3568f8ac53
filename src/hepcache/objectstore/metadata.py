"""All that is known of an ntuple before its first page is read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import xxhash

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore.anchor import IN_ANCHOR, Anchor, Link, object_name
from hepcache.objectstore.background import begun
from hepcache.objectstore.compression import decompressed
from hepcache.objectstore.footer import ClusterGroup, Footer, unpack_footer
from hepcache.objectstore.frames import EnvelopeKind, opened_envelope
from hepcache.objectstore.pagelist import Cluster, ColumnPages, unpack_page_list
from hepcache.objectstore.rootanchor import unpack_anchor
from hepcache.objectstore.rootkeys import KEYS, numbered_footer, numbered_pages
from hepcache.objectstore.schema import Schema
from hepcache.objectstore.store import Request, Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Metadata", "load_metadata", "read_anchor"]


@dataclass(frozen=True)
class Metadata:
    """An ntuple's envelopes.

    Attributes
    ----------
    anchor
        Where they are.
    header
        The header's envelope, decompressed.
    footer
        What is in the footer.
    clusters
        All clusters with their pages, in order of entries.
    schema
        Fields and columns.
    digest
        Hash of all envelopes.
    name_of
        The object's name that a number stands for.
    """

    anchor: Anchor
    header: bytes
    footer: Footer
    clusters: tuple[Cluster, ...]
    schema: Schema
    digest: bytes
    name_of: Callable[[int], str]

    @cached_property
    def entries(self) -> int:
        """Number of entries."""
        return sum(cluster.entries for cluster in self.clusters)

    @cached_property
    def boundaries(self) -> tuple[int, ...]:
        """Cluster boundaries, from 0 to the number of entries."""
        inner = (one.first_entry for one in self.clusters)
        return tuple(sorted({0, self.entries, *inner}))

    @property
    def uuid(self) -> str:
        """The writer's UUID; where it gave none, one that is made of all envelopes."""
        return self.anchor.uuid or str(uuid.UUID(bytes=self.digest))


def read_anchor(data: bytes, store: str) -> Anchor:
    """Return the anchor that is in the object at a store's URI.

    Parameters
    ----------
    data
        The object.
    store
        The URI, for messages.

    Raises
    ------
    ObjectDamagedError
        The object is no anchor, of an unknown version, or damaged.
    """
    # ROOT's anchor in DAOS begins with a small 64-bit number; JSON has no such byte.
    binary = len(data) >= 8 and not data[7]
    return unpack_anchor(data, store) if binary else Anchor.from_json(data, store)


def load_metadata(
    store: Store,
    anchor: Anchor | bytes | None = None,
    name_of: Callable[[int], str] | None = None,
) -> Metadata:
    """Read an ntuple's envelopes.

    Parameters
    ----------
    store
        Where it is.
    anchor
        Its anchor, or the object at the URI, if the caller has it.
    name_of
        Names of objects; else by the anchor's template.

    Raises
    ------
    ObjectStoreError
        An envelope is missing, damaged, or of a kind that we don't know; the
        message names it.
    """
    data = b""
    if not isinstance(anchor, Anchor):
        data = store.get("") if anchor is None else anchor
        anchor = read_anchor(data, store.uri)
    if name_of is None:
        name_of = partial(object_name, anchor.template, store=store.uri)
    links = anchor.header, anchor.footer
    if data and anchor.header.object == IN_ANCHOR:
        first, last = (memoryview(data)[one.offset :][: one.nbytes] for one in links)
    else:
        found = _read(store, [_request(one, name_of) for one in links])
        first, last = (memoryview(one) for one in found)
    header = _plain(store, name_of, anchor.header, first, EnvelopeKind.HEADER)
    footer_data = _plain(store, name_of, anchor.footer, last, EnvelopeKind.FOOTER)
    try:
        footer = unpack_footer(opened_envelope(EnvelopeKind.FOOTER, memoryview(footer_data)))
        footer = numbered_footer(footer) if anchor.template == KEYS else footer
        schema = Schema(header, footer.extension)
        _check(footer.header_checksum == schema.header_checksum, "header and footer don't match")
    except (ValueError, NotImplementedError) as error:
        raise ObjectDamagedError(store.uri, name_of(anchor.footer.object), str(error)) from error
    lists = _page_lists(store, name_of, footer.groups)
    clusters = _clusters(store, footer, lists, keyed=anchor.template == KEYS)
    checksums = [int.from_bytes(one[-8:], "little") for one in (footer_data, *lists)]
    schema.add_clusters(clusters, checksums)
    digest = xxhash.xxh3_128(header + footer_data)
    for one in lists:
        digest.update(one)
    return Metadata(anchor, header, footer, clusters, schema, digest.digest(), name_of)


def _page_lists(
    store: Store, name_of: Callable[[int], str], groups: tuple[ClusterGroup, ...]
) -> list[bytes]:
    links = [
        Link(one.locator.object, one.locator.offset, one.locator.nbytes, one.length)
        for one in groups
    ]
    found = _read(store, [_request(link, name_of) for link in links])
    return [
        _plain(store, name_of, link, memoryview(data), EnvelopeKind.PAGE_LIST)
        for link, data in zip(links, found, strict=True)
    ]


def _clusters(
    store: Store, footer: Footer, lists: list[bytes], *, keyed: bool
) -> tuple[Cluster, ...]:
    clusters: list[Cluster] = []
    try:
        for group, data in zip(footer.groups, lists, strict=True):
            payload = opened_envelope(EnvelopeKind.PAGE_LIST, memoryview(data))
            # ROOT numbers clusters in the order of the footer and its page lists.
            before = len(clusters)
            how = (partial(_keyed, before),) if keyed else ()
            checksum, found = unpack_page_list(payload, *how)
            fits = checksum == footer.header_checksum and len(found) == group.clusters
            _check(fits, "a page list belongs to another ntuple")
            clusters += found
        clusters.sort(key=lambda cluster: cluster.first_entry)
        place = 0
        for cluster in clusters:
            _check(cluster.first_entry == place, f"no cluster begins at entry {place}")
            place += cluster.entries
    except ValueError as error:
        raise ObjectDamagedError(store.uri, "", str(error)) from error
    return tuple(clusters)


def _keyed(before: int, pages: ColumnPages, cluster: int, column: int) -> ColumnPages:
    return numbered_pages(pages, before + cluster, column)


def _check(good: bool, problem: str) -> None:
    if not good:
        raise ValueError(problem)


def _read(store: Store, requests: list[Request]) -> Sequence[Buffer]:
    return begun(store, requests).result()


def _request(link: Link, name_of: Callable[[int], str]) -> Request:
    return Request(name_of(link.object), link.offset, link.nbytes)


def _plain(
    store: Store, name_of: Callable[[int], str], link: Link, data: memoryview, kind: EnvelopeKind
) -> bytes:
    try:
        plain = bytes(decompressed(data.cast("B"), link.length))
        opened_envelope(kind, memoryview(plain))
    except ValueError as error:
        raise ObjectDamagedError(store.uri, name_of(link.object), str(error)) from error
    return plain
