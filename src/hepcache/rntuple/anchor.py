"""The anchor: the small object at the URI from which a reader finds all others.

It is ROOT's anchor for S3 (``RNTupleAnchorS3``): JSON with the format's version, the
places of header and footer, a template for the names of objects, and an XXH3 checksum of
the rest. ROOT ignores members that it doesn't know; we add a UUID, so that a cache can
tell two ntuples of equal sizes apart, and the name of the mapping.

In DAOS it is the anchor of ROOT's backend (``RDaosNTupleAnchor``), with header and footer.
Their attribute keys are in one object, and DAOS stores all keys of an operation or none.
So a store has the three as the object at its URI: the anchor first, then the envelopes,
whose sizes it gives. An ntuple is replaced in one step, and a reader never finds the
header of another. ROOT reads the anchor's fields, and doesn't care what is behind them. We
put a UUID there, and a checksum.
"""

from __future__ import annotations

import json
import struct
import uuid
from dataclasses import dataclass
from typing import Any

import xxhash

from hepcache.errors import ConfigurationError, ObjectDamagedError
from hepcache.rntuple.envelopes import IN_ANCHOR, IN_FILE, string
from hepcache.rntuple.naming import BESIDE, ROOT_KEYS

FORMAT_VERSION = (1, 0, 0, 2)
"""Epoch, major, minor and patch of the RNTuple format that we write."""

_JSON_VERSION = 0
_EPOCHS = ("formatVersionEpoch", "formatVersionMajor", "formatVersionMinor", "formatVersionPatch")


@dataclass(frozen=True, slots=True)
class Link:
    """Where an envelope is: number of the object, first byte, bytes stored and decompressed."""

    object: int
    offset: int
    nbytes: int
    length: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """Entry point of an ntuple in an object store."""

    header: Link
    footer: Link
    template: str = BESIDE  # how an object's number makes its name
    mapping: str = ""  # how pages were laid in objects; "" where the writer doesn't say
    uuid: str = ""  # the ntuple's own; "" where the writer gave none
    version: tuple[int, ...] = FORMAT_VERSION

    def to_json(self) -> bytes:
        """Return the anchor as it is stored."""
        fields: dict[str, Any] = {
            "anchorVersion": _JSON_VERSION,
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
        """Return the anchor in the object at a URI (``store``); see :func:`read_anchor`."""
        try:
            fields = json.loads(data)
            stored = fields.pop("checksum", None)
            version = fields["anchorVersion"]
            if version != _JSON_VERSION:
                raise ObjectDamagedError(
                    store, "", f"anchor of version {version}; this release reads {_JSON_VERSION}"
                )
            # The first anchors that ROOT wrote had no checksum.
            if stored is not None and stored != _checksum(fields):
                raise ObjectDamagedError(store, "", "the anchor's checksum is wrong; put it again")
            return cls(
                header=_link(fields, "Header"),
                footer=_link(fields, "Footer"),
                template=str(fields["urlTemplate"]),
                mapping=str(fields.get("hepcacheMapping", "")),
                uuid=str(uuid.UUID(fields["hepcacheUuid"])) if "hepcacheUuid" in fields else "",
                version=tuple(int(fields[name]) for name in _EPOCHS),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ObjectDamagedError(
                store, "", f"no anchor of an RNTuple ({type(error).__name__}: {error})"
            ) from error


def read_anchor(data: bytes, store: str) -> Anchor:
    """Return the anchor in the object at the URI of a store.

    Raises ObjectDamagedError where the object is no anchor, of an unknown
    version, or damaged.
    """
    # ROOT's anchor in DAOS begins with a small 64-bit number; JSON has no such byte.
    binary = len(data) >= 8 and not data[7]
    return _unpack_root_anchor(data, store) if binary else Anchor.from_json(data, store)


def anchor_in_file(ntuple: Any) -> Anchor:
    """Return the anchor of an RNTuple that uproot has opened; nothing more of it is read."""
    parts = ("Epoch", "Major", "Minor", "Patch")
    return Anchor(
        header=_link_in_file(ntuple, "Header"),
        footer=_link_in_file(ntuple, "Footer"),
        version=tuple(int(ntuple.member(f"fVersion{part}")) for part in parts),
    )


def _link_in_file(ntuple: Any, which: str) -> Link:
    places = (ntuple.member(f"f{what}{which}") for what in ("Seek", "NBytes", "Len"))
    return Link(IN_FILE, *map(int, places))


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
    link = Link(
        object=int(fields[f"{short}ObjId"]),
        offset=int(fields[f"{short}Offset"]),
        nbytes=int(fields[f"nBytes{which}"]),
        length=int(fields[f"len{which}"]),
    )
    if min(link.object, link.offset, link.nbytes, link.length) < 0:
        raise ValueError(f"negative place of the {short}")
    return link


def _checksum(fields: dict[str, Any]) -> int:
    # The compact form with sorted names, as nlohmann's json library writes it.
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return xxhash.xxh3_64_intdigest(text.encode())


_ROOT_VERSION = 1
_ROOT_BYTES = 100
_HEAD = struct.Struct("<Q4H4I")
_MARK = b"hepcache"
_OURS = struct.Struct("<8s16s")
_SUM = struct.Struct("<Q")
_STAMP = _ROOT_BYTES - _OURS.size - _SUM.size


@dataclass(frozen=True, slots=True)
class RootKeys:
    """An ntuple in a container of DAOS, as ROOT finds it: its name, and its pages' class."""

    name: str
    object_class: str

    def pack_anchor(self, header: tuple[bytes, int], footer: tuple[bytes, int]) -> bytes:
        """Return the anchor, and behind it header and footer.

        Both are given with their length when decompressed.
        """
        sizes = len(header[0]), header[1], len(footer[0]), footer[1]
        anchor = _HEAD.pack(_ROOT_VERSION, *FORMAT_VERSION, *sizes) + string(self.object_class)
        if len(anchor) > _STAMP:
            expected = f"a name of {_STAMP - _HEAD.size - 4} bytes or less"
            raise ConfigurationError("object_class", expected, self.object_class)
        anchor = anchor.ljust(_STAMP, b"\0") + _OURS.pack(_MARK, uuid.uuid4().bytes)
        return anchor + _SUM.pack(xxhash.xxh3_64_intdigest(anchor)) + header[0] + footer[0]


def split_root_anchor(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return anchor, header and footer; ``None`` if this is no such object."""
    if len(data) < _HEAD.size:
        return None
    version, *_, header, _, footer, _ = _HEAD.unpack_from(data)
    place = len(data) - header - footer
    if version != _ROOT_VERSION or place < _HEAD.size:
        return None
    return data[:place], data[place : len(data) - footer], data[len(data) - footer :]


def object_class_of(anchor: bytes) -> str:
    """Return the class of the objects that have the pages; ValueError if damaged."""
    (count,) = struct.unpack_from("<I", anchor.ljust(_HEAD.size + 4, b"\xff"), _HEAD.size)
    text = anchor[_HEAD.size + 4 :][:count]
    if len(text) != count or not text:
        raise ValueError("the anchor ends before its object class")
    return text.decode()


def _unpack_root_anchor(data: bytes, store: str) -> Anchor:
    version = int.from_bytes(data[:8], "little")
    parts = split_root_anchor(data)
    if parts is None:
        problem = f"anchor of version {version}; this release reads {_ROOT_VERSION}"
        if version == _ROOT_VERSION:
            problem = "header or footer are not as long as the anchor says; put it again"
        raise ObjectDamagedError(store, "", problem)
    anchor, header, _ = parts
    _, *version_of_format, _, header_length, footer_bytes, footer_length = _HEAD.unpack_from(
        anchor
    )
    try:
        object_class_of(anchor)
    except ValueError as error:
        raise ObjectDamagedError(store, "", str(error)) from error
    writer_uuid = ""
    if anchor[_STAMP:].startswith(_MARK) and len(anchor) == _ROOT_BYTES:
        (stored,) = _SUM.unpack_from(anchor, _STAMP + _OURS.size)
        if stored != xxhash.xxh3_64_intdigest(anchor[: -_SUM.size]):
            raise ObjectDamagedError(store, "", "the anchor's checksum is wrong; put it again")
        writer_uuid = str(uuid.UUID(bytes=_OURS.unpack_from(anchor, _STAMP)[1]))
    end = len(anchor) + len(header)
    return Anchor(
        header=Link(IN_ANCHOR, len(anchor), len(header), header_length),
        footer=Link(IN_ANCHOR, end, footer_bytes, footer_length),
        template=ROOT_KEYS,
        mapping="cluster_column",
        uuid=writer_uuid,
        version=tuple(version_of_format),
    )
