"""All that is known of an ntuple before its first page is read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import uproot
import xxhash

from hepcache.errors import ObjectDamagedError
from hepcache.io.root_blocks import decompressed
from hepcache.objectstore import Request, Store
from hepcache.rntuple.anchor import Anchor, Link, anchor_in_file, read_anchor
from hepcache.rntuple.envelopes import (
    IN_ANCHOR,
    EnvelopeKind,
    Footer,
    opened_envelope,
    unpack_footer,
)
from hepcache.rntuple.naming import (
    ROOT_KEYS,
    name_in_file,
    numbered_footer,
    numbered_pages,
    object_name,
)
from hepcache.rntuple.pagelist import Cluster, ColumnPages, unpack_page_list
from hepcache.rntuple.root_on_daos import ntuple_store
from hepcache.rntuple.schema import Schema


@dataclass(frozen=True)
class Metadata:
    """An ntuple's envelopes."""

    anchor: Anchor
    header: bytes  # the envelope, decompressed
    footer: Footer
    clusters: tuple[Cluster, ...]  # in order of entries
    schema: Schema
    digest: bytes  # hash of all envelopes
    name_of: Callable[[int], str]  # returns the name of the object that has a number

    @cached_property
    def entries(self) -> int:
        """Number of entries."""
        return sum(cluster.entries for cluster in self.clusters)

    @cached_property
    def boundaries(self) -> tuple[int, ...]:
        """Cluster boundaries, from 0 to the number of entries."""
        inner = (cluster.first_entry for cluster in self.clusters)
        return tuple(sorted({0, self.entries, *inner}))

    @property
    def uuid(self) -> str:
        """The writer's UUID; where it gave none, one that is made of all envelopes."""
        return self.anchor.uuid or str(uuid.UUID(bytes=self.digest))


def load_metadata(
    store: Store, anchor: Anchor | bytes | None = None, name_of: Callable[[int], str] | None = None
) -> Metadata:
    """Read an ntuple's envelopes.

    The caller may have the anchor, or the object at the URI; ``name_of`` returns
    names of objects that aren't those of the anchor's template. Raises
    ObjectStoreError with the name of an envelope that is missing, damaged or of
    an unknown kind.
    """
    store = ntuple_store(store)
    data = b""
    if not isinstance(anchor, Anchor):
        data = store.get("") if anchor is None else anchor
        anchor = read_anchor(data, store.uri)
    if name_of is None:
        name_of = partial(object_name, anchor.template, store=store.uri)
    links = [(EnvelopeKind.HEADER, anchor.header), (EnvelopeKind.FOOTER, anchor.footer)]
    packed = None
    if data and anchor.header.object == IN_ANCHOR:
        packed = [memoryview(data)[link.offset :][: link.nbytes] for _, link in links]
    header, footer_data = _envelopes(store, name_of, links, packed)
    keyed = anchor.template == ROOT_KEYS
    try:
        footer = unpack_footer(opened_envelope(EnvelopeKind.FOOTER, memoryview(footer_data)))
        footer = numbered_footer(footer) if keyed else footer
        schema = Schema(header, footer.extension)
        _check(footer.header_checksum == schema.header_checksum, "header and footer don't match")
    except (ValueError, NotImplementedError) as error:
        raise ObjectDamagedError(store.uri, name_of(anchor.footer.object), str(error)) from error
    lists = [Link(*group.locator, group.length) for group in footer.groups]
    page_lists = _envelopes(store, name_of, [(EnvelopeKind.PAGE_LIST, link) for link in lists])
    clusters = _clusters(store, footer, page_lists, keyed=keyed)
    checksums = [int.from_bytes(data[-8:], "little") for data in (footer_data, *page_lists)]
    schema.add_clusters(clusters, checksums)
    digest = xxhash.xxh3_128(header + footer_data)
    for page_list in page_lists:
        digest.update(page_list)
    return Metadata(anchor, header, footer, clusters, schema, digest.digest(), name_of)


def file_metadata(store: Store, path: str, tree: str) -> Metadata:
    """Read the envelopes of an RNTuple in a file, which is at ``path`` for uproot."""
    with uproot.open(path) as directory:
        anchor = anchor_in_file(directory[tree])
    return load_metadata(store, anchor, name_in_file)


def _envelopes(
    store: Store,
    name_of: Callable[[int], str],
    wanted: Sequence[tuple[EnvelopeKind, Link]],
    packed: Sequence[memoryview] | None = None,
) -> list[bytes]:
    """Return envelopes decompressed and checked; ``packed`` are their bytes, if they are there."""
    if packed is None:
        requests = [Request(name_of(link.object), link.offset, link.nbytes) for _, link in wanted]
        packed = [memoryview(data).cast("B") for data in store.begin(requests).result()]
    found = []
    for (kind, link), data in zip(wanted, packed, strict=True):
        try:
            found.append(bytes(decompressed(data, link.length)))
            opened_envelope(kind, memoryview(found[-1]))
        except ValueError as error:
            raise ObjectDamagedError(store.uri, name_of(link.object), str(error)) from error
    return found


def _clusters(
    store: Store, footer: Footer, page_lists: list[bytes], *, keyed: bool
) -> tuple[Cluster, ...]:
    clusters: list[Cluster] = []
    try:
        for group, data in zip(footer.groups, page_lists, strict=True):
            payload = opened_envelope(EnvelopeKind.PAGE_LIST, memoryview(data))
            # ROOT numbers clusters in the order of the footer and its page lists.
            before = len(clusters)
            numbered = (partial(_keyed, before),) if keyed else ()
            checksum, found = unpack_page_list(payload, *numbered)
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
