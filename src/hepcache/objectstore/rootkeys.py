"""ROOT's keys for an ntuple in a container of DAOS.

ROOT's DAOS backend (``RPageSinkDaos``, ``RPageSourceDaos``) stores single values
under three numbers, with an object for each cluster:

==========  ================  =============  =======================
object      distribution key  attribute key  value
==========  ================  =============  =======================
cluster     column            page           a sealed page
-2          fixed             number         a page list
-1          fixed             three fixed    anchor, header and footer
==========  ================  =============  =======================

The upper half of an object's identity is a hash of the ntuple's name, by which
ROOT finds it. Locators are of type 2 and say only the attribute key; older
releases joined pages of a column in one value (a "cage"), see
:mod:`hepcache.objectstore.locators`.

A page is called ``.root/CLUSTER/COLUMN/PAGE`` in a store, a page list
``.root/lists/NUMBER``; like all objects they have one number each as well.
Anchor, header and footer are one object of a store, since DAOS stores and reads
attribute keys of one distribution key together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hepcache.objectstore.footer import Footer
from hepcache.objectstore.pagelist import Cluster, ColumnPages

__all__ = [
    "KEYS",
    "METADATA",
    "PAGE_LISTS",
    "PREFIX",
    "Key",
    "first_page",
    "key_name",
    "key_named",
    "key_of",
    "list_number",
    "ntuple_index",
    "number_of",
    "numbered_footer",
    "numbered_pages",
    "page_number",
    "stored_pages",
]

PREFIX = ".root/"
"""What names that stand for ROOT's keys begin with."""

KEYS = f"${{baseurl}}{PREFIX}${{objid}}"
"""In place of a template: objects have these names."""

_LIST = "lists/"

_COLUMN_BITS, _CLUSTER_BITS, _PAGE_BITS = 16, 19, 28
_BELOW_PAGE = _COLUMN_BITS + _CLUSTER_BITS
_LISTS = (1 << _CLUSTER_BITS) - 1  # in place of a cluster's number: page lists

_METADATA, PAGE_LISTS = (1 << 64) - 1, (1 << 64) - 2
"""Lower halves of the identities of the two objects that have no pages."""
_FIXED = 0x5A3C69F0CAFE4A11
_ANCHOR, _HEADER, _FOOTER = (0x4243544B5344422A + one for one in range(3))


class Key(NamedTuple):
    """Where a value is.

    Attributes
    ----------
    low
        Lower half of the object's identity.
    distribution, attribute
        The keys.
    """

    low: int
    distribution: int
    attribute: int

    def __str__(self) -> str:
        if self.low == _METADATA:
            return "anchor, header or footer"
        if self.low == PAGE_LISTS:
            return f"page list {self.attribute}"
        return f"page {self.attribute} of column {self.distribution} in cluster {self.low}"


def key_name(key: Key) -> str:
    """Return an object's name in its store.

    Examples
    --------
    >>> key_name(Key(3, 17, 205))
    '.root/3/17/205'
    """
    if key.low == _METADATA:
        return ""
    if key.low == PAGE_LISTS:
        return f"{PREFIX}{_LIST}{key.attribute}"
    return PREFIX + "/".join(map(str, key))


def key_named(name: str) -> Key | None:
    """Return the keys that an object's name in a store stands for, if any."""
    rest = name.removeprefix(PREFIX)
    parts = rest.removeprefix(_LIST).split("/")
    if rest == name or not all(one.isdecimal() and int(one) >> 64 == 0 for one in parts):
        return None
    numbers = [int(one) for one in parts]
    if rest.startswith(_LIST) and len(numbers) == 1:
        return Key(PAGE_LISTS, _FIXED, *numbers)
    if len(numbers) == 3 and numbers[0] < PAGE_LISTS and not rest.startswith(_LIST):
        return Key(*numbers)
    return None


METADATA = tuple(Key(_METADATA, _FIXED, one) for one in (_ANCHOR, _HEADER, _FOOTER))
"""Where anchor, header and footer are."""


def page_number(page: int, cluster: int, column: int) -> int:
    """Return the number that stands for a page.

    Raises
    ------
    ValueError
        There are more pages, clusters or columns than can be told.
    """
    if not (0 <= page >> _PAGE_BITS < 1 and 0 <= cluster < _LISTS and column >> _COLUMN_BITS < 1):
        raise ValueError(
            f"page {page} of column {column} in cluster {cluster}: with ROOT's keys there can be "
            f"{1 << _PAGE_BITS:,} pages, {_LISTS:,} clusters and {1 << _COLUMN_BITS:,} columns"
        )
    return page << _BELOW_PAGE | cluster << _COLUMN_BITS | column


def list_number(attribute: int) -> int:
    """Return the number that stands for a page list.

    Raises
    ------
    ValueError
        There are more than can be told.
    """
    return page_number(attribute, 0, 0) | _LISTS << _COLUMN_BITS


def key_of(number: int) -> Key:
    """Return the keys that a number stands for.

    Examples
    --------
    >>> key_of(page_number(205, 3, 17))
    Key(low=3, distribution=17, attribute=205)
    """
    page, cluster = number >> _BELOW_PAGE, number >> _COLUMN_BITS & _LISTS
    if cluster == _LISTS:
        return Key(PAGE_LISTS, _FIXED, page)
    return Key(cluster, number & ((1 << _COLUMN_BITS) - 1), page)


def number_of(key: Key) -> int:
    """Return the number that stands for some keys.

    Raises
    ------
    ValueError
        No number stands for them.
    """
    if key.low == PAGE_LISTS:
        return list_number(key.attribute)
    return page_number(key.attribute, key.low, key.distribution)


def first_page(number: int) -> int:
    """Return the first page whose number, in any cluster and column, is not below another."""
    return -(-number >> _BELOW_PAGE)


def numbered_footer(footer: Footer) -> Footer:
    """Return a footer whose page lists have numbers in place of attribute keys."""
    groups = (
        replace(one, locator=one.locator._replace(object=list_number(one.locator.object)))
        for one in footer.groups
    )
    return replace(footer, groups=tuple(groups))


def numbered_pages(pages: ColumnPages, cluster: int, column: int) -> ColumnPages:
    """Return a column's pages with numbers in place of attribute keys."""
    if not len(pages.objects):
        return pages
    for one in (pages.objects.min(), pages.objects.max()):
        page_number(int(one), cluster, column)
    base = page_number(0, cluster, column)
    return replace(pages, objects=(pages.objects << _BELOW_PAGE) | base)


def stored_pages(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Return clusters whose pages have attribute keys in place of numbers."""
    return [
        replace(
            cluster,
            columns=[replace(one, objects=one.objects >> _BELOW_PAGE) for one in cluster.columns],
        )
        for cluster in clusters
    ]


def ntuple_index(name: str) -> int:
    """Return the upper half of the identities of an ntuple's objects.

    It is ``std::hash`` of GNU's C++ library (MurmurHash64A), folded to 32 bits
    as ``boost::hash_combine`` does; 0 is reserved.

    Examples
    --------
    >>> ntuple_index("Events") == ntuple_index("events")
    False
    """
    whole = _murmur(name.encode())
    seed = whole >> 32
    seed ^= (whole & _MASK_32) + 0x9E3779B9 + (seed << 6 & _MASK_32) + (seed >> 2) & _MASK_32
    return seed or 1


_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1
_FACTOR, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907


def _murmur(data: bytes) -> int:
    def mixed(value: int) -> int:
        return value ^ value >> 47

    found = _SEED ^ len(data) * _FACTOR & _MASK_64
    whole = len(data) & ~7
    for place in range(0, whole, 8):
        word = int.from_bytes(data[place : place + 8], "little")
        word = mixed(word * _FACTOR & _MASK_64) * _FACTOR & _MASK_64
        found = (found ^ word) * _FACTOR & _MASK_64
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK_64
    return mixed(mixed(found) * _FACTOR & _MASK_64)
