"""The anchor: the small object at the URI from which a reader finds all others.

It is ROOT's anchor for S3 (``RNTupleAnchorS3``): JSON with the format's
version, the places of header and footer, a template for the names of objects,
and an XXH3 checksum of the rest. ROOT ignores members that it doesn't know;
we add a UUID, so that a cache can tell two ntuples of equal sizes apart, and
the name of the mapping.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import xxhash

from hepcache.errors import ObjectDamagedError
from hepcache.objectstore.rootkeys import KEYS, PREFIX, key_name, key_named, key_of, number_of
from hepcache.objectstore.store import Store

__all__ = [
    "BELOW",
    "BESIDE",
    "FORMAT_VERSION",
    "IN_ANCHOR",
    "Anchor",
    "Link",
    "first_free",
    "object_name",
    "object_number",
    "place_of",
]

FORMAT_VERSION = (1, 0, 0, 2)
"""Epoch, major, minor and patch of the RNTuple format that we write."""

BELOW = "${baseurl}/${objid}"
"""Objects below the URI, as ROOT writes them."""

BESIDE = "${baseurl}.pages/${objid}"
"""Objects beside the URI: for gateways that keep objects as files."""

IN_ANCHOR = -2
"""In place of an object's number: in the object at the URI, behind the anchor."""

_VERSION = 0
_EPOCHS = ("formatVersionEpoch", "formatVersionMajor", "formatVersionMinor", "formatVersionPatch")


@dataclass(frozen=True, slots=True)
class Link:
    """Where an envelope is.

    Attributes
    ----------
    object
        The object's number.
    offset
        First byte in it.
    nbytes
        Bytes stored.
    length
        Bytes when decompressed.
    """

    object: int
    offset: int
    nbytes: int
    length: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """Entry point of an ntuple in an object store.

    Attributes
    ----------
    header, footer
        The envelopes.
    template
        How an object's number makes its URL; see :func:`object_name`.
    mapping
        How pages were laid in objects; ``""`` where the writer doesn't say.
    uuid
        The ntuple's own; ``""`` where the writer gave none.
    version
        Of the RNTuple format: epoch, major, minor, patch.
    """

    header: Link
    footer: Link
    template: str = BESIDE
    mapping: str = ""
    uuid: str = ""
    version: tuple[int, ...] = FORMAT_VERSION

    def to_json(self) -> bytes:
        """Return the anchor as it is stored."""
        fields: dict[str, Any] = {
            "anchorVersion": _VERSION,
            **dict(zip(_EPOCHS, self.version, strict=True)),
            "urlTemplate": self.template,
            "cloneTemplate": "${baseurl}/_clone/${name}",
            **_link_fields("Header", self.header),
            **_link_fields("Footer", self.footer),
        }
        fields |= {"hepcacheMapping": self.mapping} if self.mapping else {}
        fields |= {"hepcacheUuid": self.uuid} if self.uuid else {}
        fields["checksum"] = _checksum(fields)
        return json.dumps(fields, sort_keys=True, indent=2, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, store: str) -> Anchor:
        """Return the anchor that was stored.

        Parameters
        ----------
        data
            The object at the URI.
        store
            The URI, for messages.

        Raises
        ------
        ObjectDamagedError
            The object is no anchor, of an unknown version, or damaged.
        """
        try:
            fields = json.loads(data)
            stored = fields.pop("checksum", None)
            version = fields["anchorVersion"]
            if version != _VERSION:
                raise ObjectDamagedError(
                    store, "", f"anchor of version {version}; this release reads {_VERSION}"
                )
            # The first anchors that ROOT wrote had no checksum.
            if stored is not None and stored != _checksum(fields):
                raise ObjectDamagedError(store, "", "the anchor's checksum is wrong; put it again")
            return cls(
                _link(fields, "Header"),
                _link(fields, "Footer"),
                str(fields["urlTemplate"]),
                str(fields.get("hepcacheMapping", "")),
                str(uuid.UUID(fields["hepcacheUuid"])) if "hepcacheUuid" in fields else "",
                tuple(int(fields[name]) for name in _EPOCHS),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ObjectDamagedError(
                store, "", f"no anchor of an RNTuple ({type(error).__name__}: {error})"
            ) from error


def object_name(template: str, number: int, store: str = "") -> str:
    """Return the name, in its store, of the object with a number.

    Raises
    ------
    ObjectDamagedError
        The template leads elsewhere than to objects of the store.

    Examples
    --------
    >>> object_name(BELOW, 12), object_name(BESIDE, 12)
    ('12', '.pages/12')
    """
    if number == IN_ANCHOR:
        return ""
    if template == KEYS:
        return key_name(key_of(number))
    rest = template.removeprefix("${baseurl}")
    plain = rest.replace("${objid}", "")
    if rest == template or plain == rest or rest[0] not in "/." or ".." in plain or "$" in plain:
        raise ObjectDamagedError(
            store, "", f"the anchor's template {template!r} names no objects of this store"
        )
    return rest.replace("${objid}", str(number)).removeprefix("/")


def object_number(template: str, name: str) -> int | None:
    """Return the number of the object that has a name; ``None`` if a template names it not.

    Examples
    --------
    >>> object_number(BESIDE, ".pages/12"), object_number(BELOW, ".pages/12")
    (12, None)
    """
    if template == KEYS:
        try:
            key = key_named(name)
            return number_of(key) if key is not None else None
        except ValueError:
            return None
    head, _, tail = object_name(template, 0).rpartition("0")
    digits = name.removeprefix(head).removesuffix(tail)
    good = digits.isdecimal() and name == object_name(template, int(digits))
    return int(digits) if good else None


def place_of(template: str) -> str:
    """Return what the names of all objects begin with, to list them."""
    return PREFIX if template == KEYS else object_name(template, 0).rpartition("0")[0]


def first_free(store: Store, template: str) -> int:
    """Return a number above those of all objects that a template names in a store."""
    names = (name for name, _ in store.list(place_of(template)))
    numbers = (object_number(template, name) for name in names)
    return max((one for one in numbers if one is not None), default=-1) + 1


def _link_fields(which: str, link: Link) -> dict[str, int]:
    short = which.lower()
    return {
        f"{short}ObjId": link.object,
        f"{short}Offset": link.offset,
        f"nBytes{which}": link.nbytes,
        f"len{which}": link.length,
    }


def _link(fields: dict[str, Any], which: str) -> Link:
    short = which.lower()
    found = (
        fields[f"{short}ObjId"],
        fields[f"{short}Offset"],
        fields[f"nBytes{which}"],
        fields[f"len{which}"],
    )
    if min(map(int, found)) < 0:
        raise ValueError(f"negative place of the {short}")
    return Link(*map(int, found))


def _checksum(fields: dict[str, Any]) -> int:
    # The compact form with sorted names, as nlohmann's json library writes it.
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return xxhash.xxh3_64_intdigest(text.encode())
