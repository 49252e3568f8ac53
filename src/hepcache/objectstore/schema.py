"""Fields and columns of an RNTuple, as uproot understands them.

This is the only module that leans on uproot's classes for RNTuple: its
readers of the header's records, and its rules for making awkward forms of
fields. ``tests/objectstore/test_real_files.py`` compares what comes out with
uproot's own reading, so that a release that changes them is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import uproot
import uproot.const
from uproot.models.RNTuple import (
    HeaderReader,
    MetaData,
    Model_ROOT_3a3a_RNTuple,
    RNTupleSchemaExtension,
)
from uproot.source.chunk import Chunk
from uproot.source.cursor import Cursor

from hepcache.objectstore.frames import EnvelopeKind, opened_envelope
from hepcache.objectstore.lazily import Lazily
from hepcache.objectstore.pagelist import Cluster

__all__ = ["ColumnInfo", "Schema"]

_SWITCH = np.dtype([("index", "<i8"), ("tag", "<i4")])


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """How a column's elements are stored, and what they are in memory.

    Attributes
    ----------
    number
        Its place in the header and its extension.
    kind
        ``"plain"``, ``"bit"``, ``"switch"``, ``"truncated"`` or ``"quantized"``.
    dtype
        Of one element when decoded.
    result
        Of the column; wider where another representation of the field is.
    bits
        Bits stored for one element.
    split, zigzag, delta
        Its encoding.
    index
        Whether the elements are offsets, counted from the cluster's begin.
    first_element
        Elements at the column's beginning that were never written, and are 0.
    low, high
        Range of a quantized column.
    alternatives
        Numbers of all columns that represent the same, itself included.
    """

    number: int
    kind: str
    dtype: np.dtype[Any]
    result: np.dtype[Any]
    bits: int
    split: bool
    zigzag: bool
    delta: bool
    index: bool
    first_element: int
    low: float
    high: float
    alternatives: tuple[int, ...]

    def plain_bytes(self, elements: int) -> int:
        """Return the bytes of a page of some elements when decompressed."""
        if self.kind == "switch":
            return elements * _SWITCH.itemsize
        return (elements * self.bits + 7) // 8


class _ObjectNTuple(Model_ROOT_3a3a_RNTuple):
    """uproot's RNTuple without a file: it tells of fields, but reads nothing."""

    def __init__(self, header: Any, footer: Any) -> None:
        # What Model_ROOT_3a3a_RNTuple.read_members sets, and what it reads later.
        self._members: dict[str, Any] = {"fName": header.ntuple_name}
        self._file = self._parent = self._cursor = None
        self._header, self._footer = header, footer
        self._field_records = self._field_names = self._column_records = None
        self._alias_column_records = self._related_ids_ = self._column_records_dict_ = None
        self._field_metadata_cache: dict[int, Any] = {}
        self._num_entries = self._length = None
        self._page_list_envelopes: list[Any] = []
        self._cluster_summaries: list[Any] | None = None
        self._page_link_list: list[Any] | None = None
        self._ntuple = self
        self._fields = self._all_fields = self._lookup = None

    @property
    def all_fields(self) -> list[Any]:
        new = self._all_fields is None
        found: list[Any] = super().all_fields
        if new:
            # uproot looks for the children of each field among all fields.
            children = self._related_ids
            for field in found:
                field._fields = _shown(field, children, found)
        return found

    def __getitem__(self, where: Any) -> Any:
        try:
            return super().__getitem__(where)
        except AttributeError:
            # uproot's message names the file, which there is none.
            raise KeyError(where) from None

    @property
    def name(self) -> str:
        return str(self._header.ntuple_name)

    @property
    def object_path(self) -> str:
        return self.name

    def set_clusters(self, clusters: Sequence[Cluster], checksums: Sequence[int]) -> None:
        self._footer.checksum = checksums[0]
        self._page_list_envelopes = [MetaData("PageLink", checksum=one) for one in checksums[1:]]
        self._cluster_summaries = [
            MetaData(
                "ClusterSummaryRecord", num_first_entry=one.first_entry, num_entries=one.entries
            )
            for one in clusters
        ]

    @property
    def classname(self) -> str:
        return "ROOT::RNTuple"


class Schema:
    """Fields and columns of one ntuple.

    Parameters
    ----------
    header
        The header's envelope.
    extension
        The frame of the schema extension in the footer.
    """

    def __init__(self, header: bytes, extension: bytes) -> None:
        opened_envelope(EnvelopeKind.HEADER, memoryview(header))
        found = HeaderReader().read(_chunk(header), Cursor(0), {})
        added = RNTupleSchemaExtension().read(_chunk(extension), Cursor(0), {})
        footer = MetaData("Footer", extension_links=added, checksum=0)
        self.model: Any = _ObjectNTuple(found, footer)
        self.header_checksum = int(found.checksum)
        self.name = str(found.ntuple_name)
        self._forms: dict[str, tuple[ak.forms.Form, tuple[str, ...]]] = {}
        # Of thousands of columns few are asked for.
        self.columns = Lazily(len(self.model.column_records), self._column)

    @cached_property
    def _doubles(self) -> set[str]:
        """Form keys of the quantized columns of doubles."""
        return {
            f"column-{record.idx}"
            for record in self.model.column_records
            if uproot.const.rntuple_col_num_to_dtype_dict[record.type] == "real32quant"
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
        # A string has two columns in each representation.
        place = [one.idx for one in alike if one.repr_idx == record.repr_idx].index(record.idx)
        grouped: dict[int, list[int]] = {}
        for one in alike:
            grouped.setdefault(one.repr_idx, []).append(one.idx)
        kinds = {"bit": "bit", "switch": "switch", "real32trunc": "truncated",
                 "real32quant": "quantized"}  # fmt: skip
        kind = kinds.get(metadata.dtype_str, "plain")
        dtype, result = metadata.dtype, metadata.dtype_result
        if f"column-{record.idx}" in self._doubles:
            # Steps between two numbers are finer than uproot's 32 bits tell.
            dtype = result = np.dtype(np.float64)
        return ColumnInfo(
            record.idx, kind, dtype, result, int(record.nbits),
            metadata.split, metadata.zigzag, metadata.delta,
            record.type in uproot.const.rntuple_index_types, int(record.first_element_index),
            float(record.min_value or 0), float(record.max_value or 0),
            tuple(group[place] for group in grouped.values() if place < len(group)),
        )  # fmt: skip

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
        """Tell uproot's model what it does not read itself.

        Parameters
        ----------
        clusters
            All clusters.
        checksums
            Of the footer, then of all page lists.
        """
        self.model.set_clusters(clusters, checksums)

    def form(self, name: str) -> tuple[ak.forms.Form, tuple[str, ...]]:
        """Return a field's form, and the names that lead to it in the form.

        Parameters
        ----------
        name
            Name of a field; dots separate it from the fields it is in.

        Raises
        ------
        KeyError
            There is no such field.
        """
        if name not in self._forms:
            form, path = self._made(name)
            if self._doubles:
                form = ak.forms.from_dict(self._widened(form.to_dict()))
            self._forms[name] = form, path
        return self._forms[name]

    def _widened(self, form: Any) -> Any:
        """Return a form, as a dict, in which quantized doubles have 64 bits."""
        if isinstance(form, list):
            return [self._widened(one) for one in form]
        if not isinstance(form, dict):
            return form
        found = {name: self._widened(one) for name, one in form.items()}
        return found | ({"primitive": "float64"} if form.get("form_key") in self._doubles else {})

    def _made(self, name: str) -> tuple[ak.forms.Form, tuple[str, ...]]:
        first, *rest = name.split(".")
        field = self._top[first]
        for step in rest:
            field = {str(one.name): one for one in field.fields}[step]
        if field.top_level:
            keys = [field.path, *(f"{field.path}.{key}" for key in field.iterkeys())]
            return self.model.field_form(field.field_id, keys), ()
        form, path = field.to_akform()
        return form, (form.fields[0], *path[1:])


def _shown(field: Any, children: dict[int, list[int]], fields: list[Any]) -> list[Any]:
    """Return the fields directly under one, for anonymous ones what is under these."""
    shown: list[Any] = []
    for number in children.get(field.field_id, ()):
        one = fields[number]
        shown += _shown(one, children, fields) if one.is_anonymous else [one]
    return shown


def _chunk(data: bytes) -> Any:
    return Chunk.wrap(None, np.frombuffer(data, np.uint8))
