"""Fields and columns of an RNTuple, as uproot understands them.

uproot reads the header's records, and makes awkward forms of fields;
``tests/rntuple/test_real_files.py`` compares what comes out with uproot's own reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np

from hepcache.rntuple.envelopes import EnvelopeKind, opened_envelope
from hepcache.rntuple.pagelist import Cluster, LazyList
from hepcache.upstream.uproot import column_type, is_index, read_header

_SWITCH = np.dtype([("index", "<i8"), ("tag", "<i4")])
_STREAMER = 4  # the role of a field that is ROOT's own bytes
_KINDS = {"bit": "bit", "switch": "switch", "real32quant": "quantized", "real32trunc": "truncated"}


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """How a column's elements are stored, and what they are in memory."""

    number: int  # its place in the header and its extension
    kind: str  # "plain", "bit", "switch", "truncated" or "quantized"
    dtype: np.dtype[Any]  # of one element when decoded
    result: np.dtype[Any]  # of the column; wider where another representation of the field is
    bits: int  # stored for one element
    split: bool
    zigzag: bool
    delta: bool
    index: bool  # whether the elements are offsets, counted from the cluster's begin
    first_element: int  # elements at the column's beginning that were never written, and are 0
    low: float  # range of a quantized column
    high: float
    alternatives: tuple[int, ...]  # all columns that represent the same, itself included

    def plain_bytes(self, elements: int) -> int:
        """Return the bytes of a page of some elements when decompressed."""
        if self.kind == "switch":
            return elements * _SWITCH.itemsize
        return (elements * self.bits + 7) // 8


class Schema:
    """Fields and columns of one ntuple, by its header and the footer's schema extension.

    ``model`` is uproot's RNTuple, which knows all fields but can't read their data.
    """

    def __init__(self, header: bytes, extension: bytes) -> None:
        opened_envelope(EnvelopeKind.HEADER, memoryview(header))
        self.model = read_header(header, extension)
        self.header_checksum = int(self.model.header.checksum)
        self.name = str(self.model.header.ntuple_name)
        self._forms: dict[str, tuple[ak.forms.Form, tuple[str, ...]]] = {}
        # Of thousands of columns few are asked for.
        self.columns = LazyList(len(self.model.column_records), self._column)

    @cached_property
    def _doubles(self) -> set[str]:
        """Form keys of the quantized columns of doubles."""
        return {
            f"column-{record.idx}"
            for record in self.model.column_records
            if column_type(record) == "real32quant"
            and self.model.field_records[record.field_id].type_name == "double"
        }

    @cached_property
    def _fields(self) -> dict[int, list[Any]]:
        """Records of the columns of each field."""
        fields: dict[int, list[Any]] = {}
        for record in self.model.column_records:
            fields.setdefault(record.field_id, []).append(record)
        return fields

    def _column(self, number: int) -> ColumnInfo:
        metadata = self.model.get_field_metadata(number)
        record = self.model.column_records[number]
        alike = self._fields[record.field_id]
        representations: dict[int, list[int]] = {}
        for other in alike:
            representations.setdefault(other.repr_idx, []).append(other.idx)
        # A string has two columns in each representation.
        place = representations[record.repr_idx].index(record.idx)
        dtype, result = metadata.dtype, metadata.dtype_result
        if f"column-{record.idx}" in self._doubles:
            # Steps between two numbers are finer than uproot's 32 bits tell.
            dtype = result = np.dtype(np.float64)
        return ColumnInfo(
            number=record.idx,
            kind=_KINDS.get(metadata.dtype_str, "plain"),
            dtype=dtype,
            result=result,
            bits=int(record.nbits),
            split=metadata.split,
            zigzag=metadata.zigzag,
            delta=metadata.delta,
            index=is_index(record),
            first_element=int(record.first_element_index),
            low=float(record.min_value or 0),
            high=float(record.max_value or 0),
            alternatives=tuple(
                columns[place] for columns in representations.values() if place < len(columns)
            ),
        )

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return list(self._top)

    @cached_property
    def cardinalities(self) -> dict[str, str]:
        """Top-level fields that count the items of lists, by the form key of these lists."""
        return {
            (self.form(name)[0].form_key or "").removesuffix("-cardinality"): name
            for name, field in self._top.items()
            if field.record.type_name.startswith("ROOT::RNTupleCardinality")
        }

    @cached_property
    def _top(self) -> dict[str, Any]:
        return {str(field.name): field for field in self.model.fields}

    def add_clusters(self, clusters: tuple[Cluster, ...], checksums: Sequence[int]) -> None:
        """Add all clusters, and the checksums of the footer and of all page lists."""
        spans = [(cluster.first_entry, cluster.entries) for cluster in clusters]
        self.model.set_clusters(spans, checksums)

    def form(self, name: str) -> tuple[ak.forms.Form, tuple[str, ...]]:
        """Return the form of a field, and the names that lead to it in the form.

        Dots separate a field's name from the fields that it is in. Raises
        KeyError where there is no such field.
        """
        if name not in self._forms:
            form, path = self._made(name)
            if self._doubles:
                form = ak.forms.from_dict(self._widened(form.to_dict()))
            self._forms[name] = form, path
        return self._forms[name]

    def streamed(self, name: str) -> str:
        """Return which fields in one are of kinds without columns, which can't be read."""
        first, *rest = name.split(".")
        found = [self._top[first].field_id]
        for step in rest:
            found = [n for n in self._under(found[0]) if self.model.all_fields[n].name == step]
        records = [
            self.model.field_records[number]
            for field in found
            for number in (field, *self._under(field))
        ]
        kinds = {record.type_name for record in records if record.struct_role == _STREAMER}
        return f"ROOT streams {', '.join(sorted(kinds))} whole, so that only ROOT reads it"

    def _under(self, number: int) -> Iterator[int]:
        """Yield the numbers of all fields that a field holds, at any depth."""
        for child, record in enumerate(self.model.field_records):
            if record.parent_field_id == number != child:
                yield child
                yield from self._under(child)

    def _widened(self, form: Any) -> Any:
        """Return a form, as a dict, in which quantized doubles have 64 bits."""
        if isinstance(form, list):
            return [self._widened(item) for item in form]
        if not isinstance(form, dict):
            return form
        found = {name: self._widened(item) for name, item in form.items()}
        return found | ({"primitive": "float64"} if form.get("form_key") in self._doubles else {})

    def _made(self, name: str) -> tuple[ak.forms.Form, tuple[str, ...]]:
        first, *rest = name.split(".")
        field = self._top[first]
        for step in rest:
            field = {str(child.name): child for child in field.fields}[step]
        if field.top_level:
            keys = [field.path, *(f"{field.path}.{key}" for key in field.iterkeys())]
            return self.model.field_form(field.field_id, keys), ()
        form, path = field.to_akform()
        return form, (form.fields[0], *path[1:])
