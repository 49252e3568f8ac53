"""All that hepcache uses of uproot without its promise to keep it.

For reading, these are uproot's model of an RNTuple, with its readers of the header's
records and its rules for making awkward forms of fields; for writing, the parts of a
file that its ``mkrntuple`` lays out. ``tests/upstream/test_uproot.py`` names each, so that
an upgrade that changes one fails there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import uproot.const
import xxhash
from uproot.models.RNTuple import (
    HeaderReader,
    MetaData,
    Model_ROOT_3a3a_RNTuple,
    RNTupleSchemaExtension,
)
from uproot.source.chunk import Chunk
from uproot.source.cursor import Cursor
from uproot.writing._cascade import RawStreamerInfo

from hepcache.upstream.names import look_up

__all__ = [
    "FileRNTuple",
    "RawStreamerInfo",
    "cascading_of",
    "column_type",
    "datetime_code",
    "has_registered_interpretations",
    "is_index",
    "read_header",
]

_REGISTERED: Any = look_up(
    "uproot.interpretation.identify:_registered_interpretations",
    "uproot reads the branches of each file, where their table would do",
)
_ANCHOR = struct.Struct(">4H7Q")


def read_header(header: bytes, extension: bytes) -> Any:
    """Return uproot's model of an RNTuple, made without a file.

    It knows all fields and columns, but can't read their data. Its method
    ``set_clusters`` takes first entry and entries of all clusters, and the
    checksums of the footer and of all page lists.
    """
    found = HeaderReader().read(_chunk(header), Cursor(0), {})
    added = RNTupleSchemaExtension().read(_chunk(extension), Cursor(0), {})
    ntuple = _ObjectRNTuple.empty()
    # The anchor would lead into a file, but sets what uproot's model consists of.
    anchor = _ANCHOR.pack(*[0] * 11)
    anchor += xxhash.xxh3_64_digest(anchor)
    ntuple.read_members(_chunk(anchor), Cursor(0), {}, None)
    ntuple.set_schema(found, added)
    return ntuple


def has_registered_interpretations() -> bool:
    """Return whether somebody told uproot to interpret branches in a way of their own."""
    return _REGISTERED is None or bool(_REGISTERED)


def datetime_code(moment: datetime) -> int:
    """Return a moment as keys of ROOT files have it."""
    day = (moment.year - 1995) << 9 | moment.month << 5 | moment.day
    return day << 17 | moment.hour << 12 | moment.minute << 6 | moment.second


def cascading_of(file: Any) -> Any:
    """Return the parts of a file that is written: its directory, its free segments."""
    return file._cascading  # noqa: SLF001


def column_type(record: Any) -> str:
    """Return uproot's name for the type of a column, by its record."""
    return str(uproot.const.rntuple_col_num_to_dtype_dict[record.type])


def is_index(record: Any) -> bool:
    """Return whether a column has offsets, by its record."""
    return record.type in uproot.const.rntuple_index_types


class _ObjectRNTuple(Model_ROOT_3a3a_RNTuple):
    """uproot's RNTuple without a file: it knows all fields, but can't read their data."""

    def set_schema(self, header: Any, extension: Any) -> None:
        self._schema_header = header
        self._schema_footer = MetaData("Footer", extension_links=extension, checksum=0)
        self.set_clusters((), (0,))

    def set_clusters(self, clusters: Iterable[tuple[int, int]], checksums: Sequence[int]) -> None:
        self._schema_footer.checksum = checksums[0]
        self._envelopes = [MetaData("PageLink", checksum=checksum) for checksum in checksums[1:]]
        self._clusters = [
            MetaData("ClusterSummaryRecord", num_first_entry=first_entry, num_entries=entries)
            for first_entry, entries in clusters
        ]

    @property
    def header(self) -> Any:
        return self._schema_header

    @property
    def footer(self) -> Any:
        return self._schema_footer

    @property
    def page_list_envelopes(self) -> list[Any]:
        return self._envelopes

    @property
    def cluster_summaries(self) -> list[Any]:
        return self._clusters

    @property
    def all_fields(self) -> list[Any]:
        new = self._all_fields is None
        found: list[Any] = super().all_fields
        if new:
            # uproot looks for the children of each field among all fields, which takes
            # seconds where there are a thousand.
            for field in found:
                field._fields = _shown(field, self._related_ids, found)
        return found

    def __getitem__(self, where: Any) -> Any:
        try:
            return super().__getitem__(where)
        except AttributeError:
            # uproot's message names the file, which there is none.
            raise KeyError(where) from None

    @property
    def name(self) -> str:
        return str(self.header.ntuple_name)

    @property
    def object_path(self) -> str:
        return self.name

    @property
    def classname(self) -> str:
        return "ROOT::RNTuple"


def _shown(field: Any, children: dict[int, list[int]], fields: list[Any]) -> list[Any]:
    """Return the fields directly under one; in place of anonymous ones, those under these."""
    shown: list[Any] = []
    for number in children.get(field.field_id, ()):
        child = fields[number]
        shown += _shown(child, children, fields) if child.is_anonymous else [child]
    return shown


def _chunk(data: bytes) -> Any:
    return Chunk.wrap(None, np.frombuffer(data, np.uint8))


class FileRNTuple:
    """An RNTuple in a file that uproot writes, to be filled with sealed pages and envelopes.

    uproot lays out the file; its own small header and footer stay behind, unused.

    ``file``: what ``uproot.recreate`` has returned.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._sink = file.file.sink
        self._writer = file.mkrntuple(name, {"_": "int32"})._cascading  # noqa: SLF001

    def add(self, data: bytes, length: int) -> int:
        """Store bytes, ``length`` when decompressed, and return their position in the file."""
        key = self._writer.add_rblob(self._sink, data, length)
        return int(key.location + key.num_bytes)

    def finish(
        self, version: Sequence[int], header: tuple[int, int, int], footer: tuple[int, int, int]
    ) -> None:
        """Overwrite the anchor, which leads to header and footer.

        These are given as position, bytes stored, and bytes when decompressed.
        """
        anchor = self._writer._anchor  # noqa: SLF001 - uproot has no call for a finished ntuple
        anchor.version_epoch, anchor.version_major, anchor.version_minor, anchor.version_patch = (
            version
        )
        anchor.seek_header, anchor.nbytes_header, anchor.len_header = header
        anchor.seek_footer, anchor.nbytes_footer, anchor.len_footer = footer
        self._sync()
        self._sink.write(anchor.location, anchor.serialize())
        self._sync()

    def _sync(self) -> None:
        # Before uproot 5.7.7 add_rblob brings the file's records up to date each time.
        sync = getattr(self._writer, "sync", None)
        if sync is None:
            self._sink.flush()
        else:
            sync(self._sink)
