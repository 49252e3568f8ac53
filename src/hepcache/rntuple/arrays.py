"""Awkward arrays to the fields and columns of an ntuple, and columns back to arrays.

Layout of the header: RNTuple Binary Format Specification 1.0, "Header Envelope".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.rntuple.envelopes import (
    EnvelopeKind,
    envelope,
    list_frame,
    opened_envelope,
    record_frame,
    string,
)

_Values = NDArray[Any]

# An element of a variant's column.
_SWITCH_ELEMENT = np.dtype([("index", "<u8"), ("tag", "<u4")])


def packed(array: Any) -> ak.contents.RecordArray:
    """Return an array of records in the few kinds of layout that an ntuple knows.

    Offsets begin at 0, options are indexes, nothing is there that no entry
    refers to. Raises ConfigurationError where there are no named fields.
    """
    layout = ak.to_layout(ak.Array(array) if isinstance(array, dict) else array)
    layout = ak.to_packed(ak.to_backend(layout, "cpu", highlevel=False), highlevel=False)
    plain = _plain(layout)
    if not isinstance(plain, ak.contents.RecordArray) or plain.is_tuple:
        raise ConfigurationError("array", "records with named fields", str(ak.type(layout)))
    return plain


def flattened(layout: ak.contents.Content) -> Iterator[NDArray[Any]]:
    """Yield the elements of each column of a packed layout, in the order of the header."""
    if isinstance(layout, ak.contents.NumpyArray):
        yield np.ascontiguousarray(layout.data)
    elif isinstance(layout, ak.contents.ListOffsetArray):
        yield np.ascontiguousarray(layout.offsets.data[1:], dtype=np.int64)
        yield from flattened(layout.content)
    elif isinstance(layout, ak.contents.IndexedOptionArray):
        # Like lists of no or one item.
        yield np.cumsum(layout.index.data >= 0, dtype=np.int64)
        yield from flattened(layout.content)
    elif isinstance(layout, ak.contents.UnionArray):
        switches = np.empty(layout.length, _SWITCH_ELEMENT)
        # Tag 0 means that there is no value.
        switches["index"], switches["tag"] = layout.index.data, layout.tags.data + 1
        yield switches
        for content in layout.contents:
            yield from flattened(content)
    elif isinstance(layout, ak.contents.RecordArray):
        for content in layout.contents:
            yield from flattened(content)
    else:
        yield from flattened(layout.content)


def _plain(layout: Any) -> Any:
    """Return a packed layout with every kind of node replaced that an ntuple doesn't know."""
    kind, parameters = ak.contents, layout.parameters
    if isinstance(layout, kind.ByteMaskedArray | kind.BitMaskedArray):
        return _plain(ak.to_packed(layout.to_IndexedOptionArray64(), highlevel=False))
    if isinstance(layout, kind.UnmaskedArray):
        return _plain(layout.content)
    if isinstance(layout, kind.IndexedArray):
        return _plain(layout.project())
    if isinstance(layout, kind.NumpyArray):
        return layout if layout.data.ndim == 1 else _plain(layout.to_RegularArray())
    if isinstance(layout, kind.ListArray | kind.ListOffsetArray):
        lists = layout.to_ListOffsetArray64(True)
        content = lists.content[: lists.offsets[-1]]
        return kind.ListOffsetArray(lists.offsets, _plain(content), parameters=parameters)
    if isinstance(layout, kind.IndexedOptionArray):
        index = np.asarray(layout.index.data, np.int64)
        return kind.IndexedOptionArray(
            ak.index.Index64(index), _plain(layout.content), parameters=parameters
        )
    if isinstance(layout, kind.RegularArray):
        return kind.RegularArray(
            _plain(layout.content), layout.size, layout.length, parameters=parameters
        )
    if isinstance(layout, kind.RecordArray):
        contents = [_plain(content[: layout.length]) for content in layout.contents]
        fields = None if layout.is_tuple else layout.fields
        return kind.RecordArray(contents, fields, layout.length, parameters=parameters)
    if isinstance(layout, kind.UnionArray):
        index = ak.index.Index64(np.asarray(layout.index.data, np.int64))
        contents = [_plain(content) for content in layout.contents]
        if any(isinstance(content, kind.IndexedOptionArray) for content in contents):
            # awkward has unions of options alone, or of none.
            contents = [_as_option(content) for content in contents]
        return kind.UnionArray(layout.tags, index, contents, parameters=parameters)
    return layout


def _as_option(layout: ak.contents.Content) -> ak.contents.IndexedOptionArray:
    """Return a plain layout as one of options, of which none is missing if it had none."""
    if isinstance(layout, ak.contents.IndexedOptionArray):
        return layout
    return ak.contents.IndexedOptionArray(ak.index.Index64(np.arange(layout.length)), layout)


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
    """A column that is written: its record in the header, and how its pages are encoded."""

    type: int  # number of the column type
    bits: int  # of an element
    field: int  # number of the field
    split: bool = False
    zigzag: bool = False
    delta: bool = False


@dataclass(slots=True)
class HeaderSpec:
    """The header of an ntuple that is written: packed records of fields, and columns.

    ``split`` says whether columns get the split encoding. The order of columns
    is that in which :func:`flattened` gives their elements.
    """

    split: bool
    fields: list[bytes] = field(default_factory=list)
    columns: list[ColumnSpec] = field(default_factory=list)

    def pack(self, name: str, description: str = "") -> bytes:
        """Return the header's envelope."""
        writer = f"hepcache {version('hepcache')}"
        columns = [
            record_frame(_COLUMN.pack(column.type, column.bits, column.field, 0, 0))
            for column in self.columns
        ]
        payload = struct.pack("<Q", 0)
        payload += string(name) + string(description) + string(writer)
        payload += list_frame(map(record_frame, self.fields)) + list_frame(columns)
        # No alias columns, no extra type information.
        payload += list_frame([]) + list_frame([])
        return envelope(EnvelopeKind.HEADER, payload)

    def add_field(
        self,
        name: str,
        type_name: str,
        role: int,
        parent: int | None,
        *,
        doc: str = "",
        repetition: int = 0,
    ) -> int:
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
        column = ColumnSpec(
            type=split if encoded else plain,
            bits=bits,
            field=number,
            split=encoded,
            zigzag=encoded and signed,
            delta=encoded and primitive == "index",
        )
        self.columns.append(column)

    def add_raw_column(self, number: int, kind: int, bits: int) -> None:
        """Add a column of characters, bytes or switches."""
        self.columns.append(ColumnSpec(kind, bits, number))


def header_of(form: ak.forms.RecordForm, *, split: bool) -> HeaderSpec:
    """Return the fields and columns of a packed array of records.

    Raises ConfigurationError where a field is of a type that no ntuple can have.
    """
    spec = HeaderSpec(split)
    for name, content in zip(form.fields, form.contents, strict=True):
        _add(spec, content, name, None, name)
    return spec


def renamed_header(header: bytes, name: str) -> bytes:
    """Return a header's envelope with another name of the ntuple; ValueError if damaged."""
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
        inner_names = [_inner_type_name(content, path) for content in form.contents]
        if isinstance(form, ak.forms.UnionForm):
            return f"std::variant<{','.join(inner_names)}>"
        return f"std::tuple<{','.join(inner_names)}>" if form.is_tuple else "{}"
    expected = "numbers, strings, lists, arrays, records, options or unions"
    raise ConfigurationError(f"field {path!r}", expected, str(form.type))


_PREFIX = "column-"


def column_numbers(form: ak.forms.Form) -> list[int]:
    """Return the columns that a form is made of, each once."""
    return list(dict.fromkeys(_number(key) for key in _keys(form)))


def layouts(
    forms: Sequence[ak.forms.Form], columns: Mapping[int, _Values], length: int
) -> list[ak.contents.Content]:
    """Return the arrays of fields, of ``length`` entries.

    Keys in their forms name columns, which are given by number; offsets have a
    0 before the first.
    """
    plain = [_plain_column(form, columns) for form in forms]
    # All others at once: each of awkward's calls costs as much as some pages.
    others = [form for form, values in zip(forms, plain, strict=True) if values is None]
    buffers: dict[str, _Values] = {}
    for form in others:
        for key in _keys(form):
            buffers |= _buffers(key, columns[_number(key)])
    record = ak.forms.RecordForm(others, None)
    made = ak.from_buffers(record, length, buffers, highlevel=False).contents if others else []
    rest = iter(made)
    return [
        next(rest) if values is None else ak.contents.NumpyArray(values[:length])
        for values in plain
    ]


def _plain_column(form: ak.forms.Form, columns: Mapping[int, _Values]) -> _Values | None:
    """Return the column that a field consists of, if it is no more than that."""
    if not isinstance(form, ak.forms.NumpyForm) or form.parameters or form.inner_shape:
        return None
    number = str(form.form_key).removeprefix(_PREFIX)
    values = columns[int(number)] if number.isdecimal() else None
    return values if values is not None and values.dtype == form.primitive else None


def _keys(form: ak.forms.Form) -> Iterator[str]:
    key = form.form_key
    if key is not None and key.startswith(_PREFIX):
        yield key
    for inner in getattr(form, "contents", ()):
        yield from _keys(inner)
    inner = getattr(form, "content", None)
    if isinstance(inner, ak.forms.Form):
        yield from _keys(inner)


def _number(key: str) -> int:
    return int(key.removeprefix(_PREFIX).partition("-")[0])


def _buffers(key: str, values: _Values) -> dict[str, _Values]:
    if key.endswith("-cardinality"):
        return {f"{key}-data": np.diff(values)}
    if key.endswith("-optional"):
        # Lists of no or one item: the item's place, or -1.
        there = np.diff(values) > 0
        return {f"{key}-index": np.where(there, values[:-1], -1).astype(values.dtype)}
    if values.dtype.names is not None:
        tags = values["tag"].astype(np.int8)
        return {
            f"{key}-tags": tags,
            f"{key}-index": np.where(tags == 0, 0, values["index"]),
            "nones-index": np.array([-1], np.int64),
        }
    return {f"{key}-data": values, f"{key}-offsets": values}
