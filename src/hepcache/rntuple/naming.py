"""Names of an ntuple's objects: a template of the anchor, or ROOT's keys for DAOS.

An object has a number, from which the anchor's template makes its name. ROOT's template
``${baseurl}/${objid}`` makes ``"12"`` of 12, and ``${baseurl}.pages/${objid}`` makes
``".pages/12"``.

ROOT's DAOS backend (``RPageSinkDaos``, ``RPageSourceDaos``) stores single values under
three numbers instead, with an object for each cluster:

==========  ================  =============  =======================
object      distribution key  attribute key  value
==========  ================  =============  =======================
cluster     column            page           a sealed page
-2          fixed             number         a page list
-1          fixed             three fixed    anchor, header and footer
==========  ================  =============  =======================

The upper half of an object's identity is a hash of the ntuple's name, by which ROOT finds
it. Locators are of type 2 and say only the attribute key; older releases joined pages of
a column in one value (a "cage"), see :mod:`hepcache.rntuple.envelopes`.

A page is called ``.root/CLUSTER/COLUMN/PAGE`` in a store, a page list
``.root/lists/NUMBER``; like all objects they have one number each as well. Anchor, header
and footer are one object of a store, since DAOS stores and reads attribute keys of one
distribution key together.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore import Store
from hepcache.rntuple.envelopes import IN_ANCHOR, IN_FILE, Footer
from hepcache.rntuple.pagelist import Cluster, ColumnPages

BELOW = "${baseurl}/${objid}"
"""Objects below the URI, as ROOT writes them."""

BESIDE = "${baseurl}.pages/${objid}"
"""Objects beside the URI: for gateways that keep objects as files."""

PREFIX = ".root/"
"""What names that stand for ROOT's keys begin with."""

ROOT_KEYS = f"${{baseurl}}{PREFIX}${{objid}}"
"""In place of a template: objects have the names of ROOT's keys."""


_OWN = re.compile(r"put-[0-9a-f]{12}-[0-9a-f]{8}/")


def new_own_name(identity: str = "") -> str:
    """Return a name below which one put alone has its objects.

    It begins alike for puts of the same ``identity``, a hash in hexadecimal digits.
    """
    return f"put-{identity[:12] or secrets.token_hex(6)}-{secrets.token_hex(4)}"


def own_template(template: str, own: str) -> str:
    """Return the template of the objects of one put.

    >>> own_template(BESIDE, "put-0123456789ab-01234567")
    '${baseurl}.pages/put-0123456789ab-01234567/${objid}'
    """
    return template.replace("${objid}", f"{own}/${{objid}}")


def own_name(text: str) -> str:
    """Return the name of the put that a template, or the name of an object, belongs to."""
    found = _OWN.search(text)
    return found[0].removesuffix("/") if found else ""


def without_own_name(text: str) -> str:
    """Return a template, or the name of an object, as it is without that of its put."""
    return _OWN.sub("", text, count=1)


def object_name(template: str, number: int, store: str = "") -> str:
    """Return the name, in its store, of the object with a number.

    Raises ObjectDamagedError where the template leads elsewhere than to objects
    of the store.

    >>> object_name(BELOW, 12), object_name(BESIDE, 12)
    ('12', '.pages/12')
    """
    if number == IN_ANCHOR:
        return ""
    if template == ROOT_KEYS:
        return key_name(key_of(number))
    rest = template.removeprefix("${baseurl}")
    plain = rest.replace("${objid}", "")
    if rest == template or plain == rest or rest[0] not in "/." or ".." in plain or "$" in plain:
        raise ObjectDamagedError(
            store, "", f"the anchor's template {template!r} names no objects of this store"
        )
    return rest.replace("${objid}", str(number)).removeprefix("/")


def object_number(template: str, name: str) -> int | None:
    """Return the number of the object that has a name, ``None`` where it has none.

    >>> object_number(BESIDE, ".pages/12"), object_number(BELOW, ".pages/12")
    (12, None)
    """
    if template == ROOT_KEYS:
        try:
            key = key_named(name)
            return number_of(key) if key is not None else None
        except ValueError:
            return None
    head, _, tail = object_name(template, 0).rpartition("0")
    digits = name.removeprefix(head).removesuffix(tail)
    good = digits.isdecimal() and name == object_name(template, int(digits))
    return int(digits) if good else None


def prefix_of(template: str) -> str:
    """Return what the names of all objects begin with, to list them."""
    return PREFIX if template == ROOT_KEYS else object_name(template, 0).rpartition("0")[0]


def first_free(store: Store, template: str) -> int:
    """Return a number above those of all objects that a template names in a store."""
    names = (name for name, _ in store.list(prefix_of(template)))
    numbers = (object_number(template, name) for name in names)
    return max((number for number in numbers if number is not None), default=-1) + 1


def name_in_file(number: int) -> str:
    """Return the name of the only object of a file; ValueError where another is meant."""
    if number != IN_FILE:
        raise ValueError(f"locator of object {number} in a file")
    return ""


_LIST = "lists/"

_COLUMN_BITS, _CLUSTER_BITS, _PAGE_BITS = 16, 19, 28
_BELOW_PAGE = _COLUMN_BITS + _CLUSTER_BITS
_LISTS = (1 << _CLUSTER_BITS) - 1  # in place of a cluster's number: page lists

# Lower halves of the identities of the two objects that have no pages.
_METADATA = (1 << 64) - 1
PAGE_LISTS = (1 << 64) - 2
_FIXED = 0x5A3C69F0CAFE4A11
_ANCHOR, _HEADER, _FOOTER = 0x4243544B5344422A, 0x4243544B5344422B, 0x4243544B5344422C


class Key(NamedTuple):
    """Where a value is: lower half of the object's identity, and the two keys."""

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
    if rest == name or not all(part.isdecimal() and int(part) >> 64 == 0 for part in parts):
        return None
    numbers = [int(part) for part in parts]
    if rest.startswith(_LIST) and len(numbers) == 1:
        return Key(PAGE_LISTS, _FIXED, *numbers)
    if len(numbers) == 3 and numbers[0] < PAGE_LISTS and not rest.startswith(_LIST):
        return Key(*numbers)
    return None


METADATA = tuple(Key(_METADATA, _FIXED, key) for key in (_ANCHOR, _HEADER, _FOOTER))
"""Where anchor, header and footer are."""


def page_number(page: int, cluster: int, column: int) -> int:
    """Return the number that stands for a page; ValueError where there are too many."""
    if not (0 <= page >> _PAGE_BITS < 1 and 0 <= cluster < _LISTS and column >> _COLUMN_BITS < 1):
        raise ValueError(
            f"page {page} of column {column} in cluster {cluster}: with ROOT's keys there can be "
            f"{1 << _PAGE_BITS:,} pages, {_LISTS:,} clusters and {1 << _COLUMN_BITS:,} columns"
        )
    return page << _BELOW_PAGE | cluster << _COLUMN_BITS | column


def list_number(attribute: int) -> int:
    """Return the number that stands for a page list; ValueError where there are too many."""
    return page_number(attribute, 0, 0) | _LISTS << _COLUMN_BITS


def key_of(number: int) -> Key:
    """Return the keys that a number stands for.

    >>> key_of(page_number(205, 3, 17))
    Key(low=3, distribution=17, attribute=205)
    """
    page, cluster = number >> _BELOW_PAGE, number >> _COLUMN_BITS & _LISTS
    if cluster == _LISTS:
        return Key(PAGE_LISTS, _FIXED, page)
    return Key(cluster, number & ((1 << _COLUMN_BITS) - 1), page)


def number_of(key: Key) -> int:
    """Return the number that stands for some keys; ValueError where none does."""
    if key.low == PAGE_LISTS:
        return list_number(key.attribute)
    return page_number(key.attribute, key.low, key.distribution)


def first_page(number: int) -> int:
    """Return the first page whose number, in any cluster and column, is not below another."""
    return -(-number >> _BELOW_PAGE)


def numbered_footer(footer: Footer) -> Footer:
    """Return a footer whose page lists have numbers in place of attribute keys."""
    groups = []
    for group in footer.groups:
        number = list_number(group.locator.object)
        groups.append(replace(group, locator=group.locator._replace(object=number)))
    return replace(footer, groups=tuple(groups))


def numbered_pages(pages: ColumnPages, cluster: int, column: int) -> ColumnPages:
    """Return a column's pages with numbers in place of attribute keys."""
    if not len(pages.objects):
        return pages
    for attribute in (pages.objects.min(), pages.objects.max()):
        page_number(int(attribute), cluster, column)
    base = page_number(0, cluster, column)
    return replace(pages, objects=(pages.objects << _BELOW_PAGE) | base)


def stored_pages(clusters: Sequence[Cluster]) -> list[Cluster]:
    """Return clusters whose pages have attribute keys in place of numbers."""
    stored = []
    for cluster in clusters:
        columns = [
            replace(pages, objects=pages.objects >> _BELOW_PAGE) for pages in cluster.columns
        ]
        stored.append(replace(cluster, columns=columns))
    return stored
