"""Takes awkward arrays, and writes them as the clusters of an ntuple of objects."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError
from hepcache.objectstore.anchor import BESIDE, Anchor
from hepcache.objectstore.background import workers
from hepcache.objectstore.compression import parse_compression
from hepcache.objectstore.flatten import flattened, packed
from hepcache.objectstore.header import ColumnSpec, describe
from hepcache.objectstore.objects import ObjectWriter, SealedColumn, SealedPage
from hepcache.objectstore.rootwriter import open_writer
from hepcache.objectstore.seal import seal
from hepcache.objectstore.store import Store, open_store

__all__ = ["Sink", "WriteOptions"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an ntuple is written.

    Attributes
    ----------
    mapping
        ``"cluster"``, ``"cluster_column"``, ``"page"`` or ``"file"``; ``""`` for
        what ROOT uses in the store, else ``"cluster"``.
    compression
        ``"zstd"``, ``"lz4"``, ``"zlib"``, ``"lzma"``, with a level behind a
        colon, or ``"none"``.
    page_bytes, cluster_bytes
        Bytes of a page and of a cluster before compression.
    checksums
        Whether pages have one.
    split
        Whether numbers are stored with all first bytes together, which
        compresses better; ``None`` where they are compressed.
    template
        How objects are named; see :mod:`hepcache.objectstore.anchor`.
    object_bytes
        Bytes of the largest object; ``None`` for the store's limit.
    puts
        Objects on their way at a time.
    """

    mapping: str = ""
    compression: str = "zstd"
    page_bytes: int = 1 << 20
    cluster_bytes: int = 64 << 20
    checksums: bool = True
    split: bool | None = None
    template: str = BESIDE
    object_bytes: int | None = None
    puts: int = 8


class Sink:
    """Writes one ntuple.

    Parameters
    ----------
    store
        Where to: a store or a URI.
    name
        The ntuple's name; the store's, where ROOT finds it by that (DAOS).
    options
        How.
    description
        Text for the header.

    Raises
    ------
    ConfigurationError
        An option has no meaning.
    ObjectStoreError
        The store fails, now or in any later call.

    Attributes
    ----------
    closed
        Whether nothing can be added any more.

    Notes
    -----
    Belongs to one thread. The ntuple can be read when :meth:`close` has
    returned, and not before; leaving the context with an error drops it.

    Examples
    --------
    >>> with Sink("ntpl+mem://doctest/sink", "Events") as sink:
    ...     sink.extend({"x": [1.5, 2.5], "y": [[1], [2, 3]]})
    """

    def __init__(
        self,
        store: Store | str,
        name: str,
        options: WriteOptions | None = None,
        *,
        description: str = "",
    ) -> None:
        self.options = options or WriteOptions()
        self._compression = parse_compression(self.options.compression)
        for size in ("page_bytes", "cluster_bytes"):
            if getattr(self.options, size) < 1024:
                raise ConfigurationError(size, "1024 or more", getattr(self.options, size))
        self._store = open_store(store) if isinstance(store, str) else store
        self._owned = isinstance(store, str)
        self._name, self._description = name, description
        self._writer: ObjectWriter | None = None
        self._form: ak.forms.Form | None = None
        self._columns: list[ColumnSpec] = []
        self._waiting: list[ak.contents.Content] = []
        self._waiting_bytes = 0
        self.closed = False

    def extend(self, array: Any) -> None:
        """Add entries; the first call decides what the fields are.

        Parameters
        ----------
        array
            An array of records, or a dict of arrays.

        Raises
        ------
        ConfigurationError
            It has other fields than the first, or such as no ntuple can have.
        """
        layout = packed(array)
        form = layout.form
        if self._form is None:
            self._begin(form)
        elif form != self._form or form.fields != self._form.fields:
            problem = "the fields of the first array, with their types"
            raise ConfigurationError("array", f"{problem} ({self._form.type})", str(form.type))
        for start, stop in self._parts(layout):
            part = layout[start:stop]
            self._waiting.append(part)
            self._waiting_bytes += _bytes(part, layout)
            if self._waiting_bytes >= self.options.cluster_bytes:
                self._flush()

    def close(self) -> Anchor:
        """Write what waits, and the anchor last."""
        if self._writer is None:
            raise ConfigurationError("array", "an array, so that the fields are known", None)
        try:
            self._flush()
            return self._writer.commit()
        finally:
            self._end()

    @property
    def nbytes(self) -> int:
        """Bytes of the objects that were put, but for the anchor."""
        return 0 if self._writer is None else self._writer.nbytes

    def abort(self) -> None:
        """Stop; nothing will be seen of what was written."""
        if self._writer is not None:
            self._writer.abort()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.closed:
            return
        if kind is None:
            self.close()
        else:
            self.abort()

    def _end(self) -> None:
        self.closed = True
        if self._owned:
            self._store.close()

    def _begin(self, form: ak.forms.Form) -> None:
        split = self.options.split
        spec = describe(form, split=self.options.compression != "none" if split is None else split)
        self._form, self._columns = form, spec.columns
        self._writer = open_writer(
            self._store,
            spec.pack(self._name, self._description),
            mapping=self.options.mapping,
            template=self.options.template,
            object_bytes=self.options.object_bytes,
            puts=self.options.puts,
        )

    def _parts(self, layout: ak.contents.Content) -> Iterator[tuple[int, int]]:
        """Yield entry ranges of an array that fill up a cluster each."""
        length = layout.length
        per_entry = max(layout.nbytes / length, 1) if length else 1
        start = 0
        while start < length:
            room = self.options.cluster_bytes - self._waiting_bytes
            stop = min(length, start + max(1, round(room / per_entry)))
            yield start, stop
            start = stop

    def _flush(self) -> None:
        if not self._waiting or self._writer is None:
            return
        whole = self._waiting[0] if len(self._waiting) == 1 else ak.concatenate(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        layout = packed(whole)
        pages = [
            self._sealed(values, column)
            for values, column in zip(flattened(layout), self._columns, strict=True)
        ]
        settings = self._compression.settings
        self._writer.write_cluster(
            layout.length,
            [SealedColumn([page.result() for page in column], settings) for column in pages],
        )

    def _sealed(self, values: NDArray[Any], column: ColumnSpec) -> list[Future[SealedPage]]:
        per_page = max(1, self.options.page_bytes * 8 // column.bits)
        # Pages of bits begin on whole bytes.
        per_page = -(-per_page // 8) * 8
        return [
            workers().submit(
                seal, values[start : start + per_page], column, self._compression,
                checksum=self.options.checksums,
            )
            for start in range(0, len(values), per_page)
        ]  # fmt: skip


def _bytes(part: ak.contents.Content, whole: ak.contents.Content) -> int:
    # A slice still holds all of its buffers.
    return int(whole.nbytes * part.length / np.maximum(whole.length, 1))
