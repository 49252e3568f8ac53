"""Writes an ntuple under ROOT's keys, and says where that is done.

See :mod:`hepcache.objectstore.rootkeys`. Header, footer and anchor are stored
in one operation at the end, so that what was there before is replaced whole.
"""

from __future__ import annotations

from typing import Any

from hepcache.errors import ConfigurationError, ObjectStoreError
from hepcache.objectstore.anchor import Anchor
from hepcache.objectstore.compression import compressed
from hepcache.objectstore.footer import ClusterGroup
from hepcache.objectstore.header import renamed
from hepcache.objectstore.locators import Locator
from hepcache.objectstore.objects import ENVELOPES, MAPPINGS, ObjectWriter, SealedPage
from hepcache.objectstore.pagelist import pack_page_list
from hepcache.objectstore.rootanchor import RootKeys, unpack_anchor
from hepcache.objectstore.rootkeys import (
    KEYS,
    first_page,
    list_number,
    page_number,
    stored_pages,
)
from hepcache.objectstore.store import Store

__all__ = ["RootWriter", "laid_out", "open_writer"]


def laid_out(store: Store, mapping: str, template: str) -> tuple[str, str]:
    """Return mapping and template of an ntuple that is written to a store.

    Parameters
    ----------
    store
        Where to.
    mapping
        One of :data:`~hepcache.objectstore.objects.MAPPINGS`, or ``""`` for
        ROOT's own where it has one, else ``"cluster"``.
    template
        How objects are named where ROOT's keys aren't used.

    Raises
    ------
    ConfigurationError
        The mapping is unknown.
    """
    keys = getattr(store, "root_keys", None)
    mapping = mapping or ("cluster" if keys is None else "cluster_column")
    if mapping not in MAPPINGS:
        raise ConfigurationError("mapping", f"one of {', '.join(MAPPINGS)}", mapping)
    return mapping, template if keys is None or mapping != "cluster_column" else KEYS


def open_writer(
    store: Store, header: bytes, *, mapping: str, template: str, **options: Any
) -> ObjectWriter:
    """Return the writer for a store and a mapping; see :func:`laid_out`.

    Raises
    ------
    ConfigurationError
        The mapping is unknown.
    ObjectStoreError
        The store fails.
    """
    mapping, template = laid_out(store, mapping, template)
    kind = RootWriter if template == KEYS else ObjectWriter
    return kind(store, header, mapping=mapping, template=template, **options)


class RootWriter(ObjectWriter):
    """Writes the pages of one ntuple as values under ROOT's keys."""

    def _put_header(self) -> None:
        self._keys: RootKeys = self._store.root_keys  # type: ignore[attr-defined]
        # ROOT finds an ntuple by its name, and looks whether it is that of the header.
        self._header = renamed(self._header, self._keys.name)
        self._number = first_page(self._number)

    def _place(self, page: SealedPage, _: object) -> Locator:
        """Return where a page goes; ROOT can't read one value for two pages."""
        self._flush()
        data = memoryview(page.data).cast("B")
        return self._appended(data)._replace(nbytes=len(data) - 8 * page.checksummed)

    def _object_number(self) -> int:
        try:
            return page_number(self._next(), len(self._clusters), self._column)
        except ValueError as error:
            problem = f"{error}; write larger pages and clusters, or another mapping"
            raise ObjectStoreError(self._store.uri, "", problem) from error

    def _group(self, checksum: int) -> ClusterGroup:
        pages = pack_page_list(checksum, stored_pages(self._clusters), whole=True)
        packed, attribute = compressed(pages, ENVELOPES), self._next()
        self._put(list_number(attribute), packed)
        locator = Locator(attribute, 0, len(packed))
        return ClusterGroup(0, self._entries, len(self._clusters), len(pages), locator)

    def _anchored(self, footer: bytes) -> Anchor:
        self._wait()
        parts = [(bytes(compressed(one, ENVELOPES)), len(one)) for one in (self._header, footer)]
        data = self._keys.pack_anchor(*parts)
        self.nbytes += sum(len(one) for one, _ in parts)
        self._store.put_anchor("", data)
        return unpack_anchor(data, self._store.uri)
