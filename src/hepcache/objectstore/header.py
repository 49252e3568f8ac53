"""The header of an ntuple that we write: its fields and columns, from an awkward form.

Layout: RNTuple Binary Format Specification 1.0, "Header Envelope"; the C++
types that fields are given are those of uproot's writer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import awkward as ak

from hepcache.errors import ConfigurationError
from hepcache.objectstore.frames import (
    EnvelopeKind,
    envelope,
    list_frame,
    opened_envelope,
    record_frame,
    string,
)

__all__ = ["ColumnSpec", "HeaderSpec", "describe", "renamed"]

_FIELD, _COLUMN = struct.Struct("<IIIHH"), struct.Struct("<HHIHH")
_LEAF, _COLLECTION, _RECORD, _VARIANT = range(4)
_REPETITIVE = 1
_SWITCH, _CHAR, _BYTE = 0x10, 0x02, 0x01
# Primitive: C++ type, bits, column type, column type of the split encoding.
_TYPES = {
    "bool": ("bool", 1, 0x00, 0x00),
    "int8": ("std::int8_t", 8, 0x03, 0x03),
    "uint8": ("std::uint8_t", 8, 0x04, 0x04),
    "int16": ("std::int16_t", 16, 0x05, 0x11),
    "uint16": ("std::uint16_t", 16, 0x06, 0x12),
    "int32": ("std::int32_t", 32, 0x07, 0x13),
    "uint32": ("std::uint32_t", 32, 0x08, 0x14),
    "int64": ("std::int64_t", 64, 0x09, 0x15),
    "uint64": ("std::uint64_t", 64, 0x0A, 0x16),
    "float16": ("float", 16, 0x0B, 0x17),
    "float32": ("float", 32, 0x0C, 0x18),
    "float64": ("double", 64, 0x0D, 0x19),
    "index": ("", 64, 0x0F, 0x1B),
}


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column that is written.

    Attributes
    ----------
    type, bits, field
        As the header says: number of the column type, bits of an element,
        number of the field.
    split, zigzag, delta
        How pages are encoded.
    """

    type: int
    bits: int
    field: int
    split: bool = False
    zigzag: bool = False
    delta: bool = False


@dataclass(slots=True)
class HeaderSpec:
    """Fields and columns, as they are gathered.

    Attributes
    ----------
    split
        Whether columns get the split encoding.
    fields
        Packed records.
    columns
        The columns, in the order in which
        :func:`hepcache.objectstore.flatten.flattened` gives their elements.
    """

    split: bool
    fields: list[bytes] = field(default_factory=list)
    columns: list[ColumnSpec] = field(default_factory=list)

    def pack(self, name: str, description: str = "") -> bytes:
        """Return the header's envelope."""
        writer = f"hepcache {version('hepcache')}"
        columns = [
            record_frame(_COLUMN.pack(one.type, one.bits, one.field, 0, 0)) for one in self.columns
        ]
        payload = b"".join([
            struct.pack("<Q", 0), string(name), string(description), string(writer),
            list_frame(map(record_frame, self.fields)), list_frame(columns),
            list_frame([]), list_frame([]),
        ])  # fmt: skip
        return envelope(EnvelopeKind.HEADER, payload)

    def add_field(
        self, name: str, type_name: str, role: int, parent: int | None, *,
        doc: str = "", repetition: int = 0,
    ) -> int:  # fmt: skip
        """Add a field; return its number."""
        number = len(self.fields)
        flags = _REPETITIVE if repetition else 0
        record = _FIELD.pack(0, 0, number if parent is None else parent, role, flags)
        record += string(name) + string(type_name) + string("") + string(doc)
        record += struct.pack("<Q", repetition) if repetition else b""
        self.fields.append(record)
        return number

    def add_column(self, number: int, primitive: str) -> None:
        """Add a field's column of numbers or, for ``"index"``, of offsets."""
        _, bits, plain, split = _TYPES[primitive]
        encoded = self.split and split != plain
        signed = primitive.startswith("int")
        self.columns.append(ColumnSpec(
            split if encoded else plain, bits, number, encoded,
            encoded and signed, encoded and primitive == "index",
        ))  # fmt: skip

    def add_raw_column(self, number: int, kind: int, bits: int) -> None:
        """Add a column of characters, bytes or switches."""
        self.columns.append(ColumnSpec(kind, bits, number))


def describe(form: ak.forms.RecordForm, *, split: bool) -> HeaderSpec:
    """Return the fields and columns of an array of records.

    Parameters
    ----------
    form
        Form of a packed array; see :mod:`hepcache.objectstore.flatten`.
    split
        Whether columns get the split encoding.

    Raises
    ------
    ConfigurationError
        A field is of a type that RNTuple has no form for.
    """
    spec = HeaderSpec(split)
    for name, content in zip(form.fields, form.contents, strict=True):
        _add(spec, content, name, None, name)
    return spec


def renamed(header: bytes, name: str) -> bytes:
    """Return a header's envelope with another name of the ntuple.

    Parameters
    ----------
    header
        The envelope, decompressed.
    name
        The name.

    Raises
    ------
    ValueError
        The header is damaged.
    """
    payload = opened_envelope(EnvelopeKind.HEADER, memoryview(header))
    place = 8
    # The feature flags go on while their highest bit is set.
    while payload[place - 1] & 0x80:
        place += 8
    behind = place + 4 + int.from_bytes(payload[place : place + 4], "little")
    new = bytes(payload[:place]) + string(name) + bytes(payload[behind:])
    return envelope(EnvelopeKind.HEADER, new)


def _add(spec: HeaderSpec, form: Any, name: str, parent: int | None, path: str) -> None:
    doc = str(form.parameters.get("__doc__", ""))
    role, repetition = _role(form)
    number = spec.add_field(
        name, _type_name(form, path, top=True), role, parent, doc=doc, repetition=repetition
    )
    kind = form.parameters.get("__array__")
    if isinstance(form, ak.forms.NumpyForm):
        spec.add_column(number, form.primitive)
    elif isinstance(form, ak.forms.ListOffsetForm):
        spec.add_column(number, "index")
        if kind == "string":
            spec.add_raw_column(number, _CHAR, 8)
        elif kind == "bytestring":
            inner = spec.add_field("_0", "std::byte", _LEAF, number)
            spec.add_raw_column(inner, _BYTE, 8)
        else:
            _add(spec, form.content, "_0", number, path)
    elif isinstance(form, ak.forms.IndexedOptionForm):
        spec.add_column(number, "index")
        _add(spec, form.content, "_0", number, path)
    elif isinstance(form, ak.forms.RegularForm):
        _add(spec, form.content, "_0", number, path)
    else:
        if isinstance(form, ak.forms.UnionForm):
            spec.add_raw_column(number, _SWITCH, 96)
        for index, content in enumerate(form.contents):
            named = isinstance(form, ak.forms.RecordForm) and not form.is_tuple
            inner_name = form.fields[index] if named else f"_{index}"
            _add(spec, content, inner_name, number, f"{path}.{inner_name}")


def _role(form: Any) -> tuple[int, int]:
    if isinstance(form, ak.forms.RegularForm):
        return _LEAF, form.size
    if isinstance(form, ak.forms.RecordForm):
        return _RECORD, 0
    if isinstance(form, ak.forms.UnionForm):
        return _VARIANT, 0
    text = form.parameters.get("__array__") == "string"
    lists = isinstance(form, ak.forms.ListOffsetForm | ak.forms.IndexedOptionForm)
    return (_COLLECTION if lists and not text else _LEAF), 0


def _type_name(form: Any, path: str, *, top: bool = False) -> str:
    name = _inner_type_name(form, path)
    # Records of named fields have no C++ type, nor has what holds them.
    return "" if top and "{}" in name else name


def _inner_type_name(form: Any, path: str) -> str:
    if isinstance(form, ak.forms.NumpyForm) and form.primitive in _TYPES and not form.inner_shape:
        return _TYPES[form.primitive][0]
    if isinstance(form, ak.forms.ListOffsetForm):
        kind = form.parameters.get("__array__")
        if kind == "string":
            return "std::string"
        inner = "std::byte" if kind == "bytestring" else _inner_type_name(form.content, path)
        return f"std::vector<{inner}>"
    if isinstance(form, ak.forms.IndexedOptionForm):
        inner = _inner_type_name(form.content, path)
        if "{}" not in inner:
            return f"std::optional<{inner}>"
        # Without a C++ type nothing would tell it from a list.
        raise ConfigurationError(f"field {path!r}", "no options of records", str(form.type))
    if isinstance(form, ak.forms.RegularForm) and form.size:
        return f"std::array<{_inner_type_name(form.content, path)},{form.size}>"
    if isinstance(form, ak.forms.RecordForm | ak.forms.UnionForm):
        inner_names = [_inner_type_name(one, path) for one in form.contents]
        if isinstance(form, ak.forms.UnionForm):
            return f"std::variant<{','.join(inner_names)}>"
        return f"std::tuple<{','.join(inner_names)}>" if form.is_tuple else "{}"
    raise ConfigurationError(
        f"field {path!r}", "numbers, strings, lists, arrays, records, options or unions",
        str(form.type),
    )  # fmt: skip
