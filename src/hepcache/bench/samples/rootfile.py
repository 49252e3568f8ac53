"""ROOT files written cluster by cluster, under their final name only when complete.

uproot provides the file: header, directory, free segments, streamers. All
that is private of its writer is here, and ``tests/bench/test_rootfile.py``
reads back what was written.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import uproot
from numpy.typing import NDArray
from uproot.writing import _cascade

from hepcache.bench.samples.ttree import Basket, BranchRecord, Leaf, encode_basket, encode_tree

__all__ = ["RootFile", "TreeWriter"]

_MODELS = (
    uproot.models.TLeaf.Model_TLeafB_v1,
    uproot.models.TLeaf.Model_TLeafS_v1,
    uproot.models.TLeaf.Model_TLeafI_v1,
    uproot.models.TLeaf.Model_TLeafL_v1,
    uproot.models.TLeaf.Model_TLeafF_v1,
    uproot.models.TLeaf.Model_TLeafD_v1,
    uproot.models.TLeaf.Model_TLeafO_v1,
    uproot.models.TBranch.Model_TBranch_v13,
    uproot.models.TTree.Model_TTree_v20,
)


class RootFile:
    """A ROOT file that appears under its name when the block ends without an error.

    Parameters
    ----------
    path
        The final name.
    compression
        As ``parse_compression`` returns it.
    uuid
        The file's UUID; a random one by default.
    datime
        The file's date.
    check
        Called with the complete file before it gets its name; an exception
        that it raises leaves nothing behind.
    """

    def __init__(
        self,
        path: Path,
        compression: Any,
        *,
        uuid: Any = None,
        datime: datetime | None = None,
        check: Callable[[Path], None] | None = None,
    ) -> None:
        self._check = check
        self.path, self.compression = path, compression
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        options = {} if uuid is None else {"uuid_function": lambda: uuid}
        self._file = uproot.recreate(self._temporary, compression=compression, **options)
        self.datime = uproot._util.datetime_to_code(datime or datetime.now())  # noqa: SLF001

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._streamers()
            self._file.close()
            if kind is None:
                if self._check is not None:
                    self._check(self._temporary)
                with self._temporary.open("rb") as file:
                    os.fsync(file.fileno())
                self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def tree(self, name: str, title: str, leaves: Sequence[Leaf]) -> TreeWriter:
        """Return a writer of a new tree."""
        return TreeWriter(self, name, title, leaves)

    def _streamers(self) -> None:
        streamers = {raw[-2:]: raw for model in _MODELS for raw in model.class_rawstreamers}
        infos = [_cascade.RawStreamerInfo(*raw) for raw in streamers.values()]
        self._file.file.update_streamers(infos)

    def place(self, baskets: Sequence[Basket]) -> list[int]:
        """Write baskets one after the other; return their positions."""
        cascading, sink = self._file._cascading, self._file.file.sink  # noqa: SLF001
        seek = cascading.freesegments.allocate(sum(one.nbytes for one in baskets), dry_run=False)
        parent = cascading.key.location
        starts = itertools.accumulate((one.nbytes for one in baskets), initial=seek)
        seeks = list(starts)[:-1]
        parts = [
            part
            for one, place in zip(baskets, seeks, strict=True)
            for part in (one.placed(place, parent), one.payload)
        ]
        sink.write(seek, b"".join(parts))
        cascading.freesegments.write(sink)
        sink.set_file_length(cascading.freesegments.fileheader.end)
        return seeks

    def add_object(self, classname: str, name: str, title: str, raw: bytes) -> None:
        """Write a serialised object with its key."""
        packed = uproot.compression.compress(raw, self.compression)
        sink = self._file.file.sink
        self._file._cascading.add_object(  # noqa: SLF001
            sink, classname, name, title, packed, len(raw), big=True
        )


class TreeWriter:
    """Writes a tree cluster by cluster; made by :meth:`RootFile.tree`.

    Parameters
    ----------
    file
        The file.
    name, title
        The tree's.
    leaves
        Its branches, in order.
    """

    def __init__(self, file: RootFile, name: str, title: str, leaves: Sequence[Leaf]) -> None:
        self.name, self.title = name, title
        self._file = file
        self._branches = [BranchRecord(leaf) for leaf in leaves]
        self._clusters = [0]

    def encode(
        self, columns: Mapping[str, NDArray[Any]], offsets: Mapping[str, NDArray[np.int64]]
    ) -> list[Basket]:
        """Compress one cluster; safe to call from several threads at once.

        Parameters
        ----------
        columns
            Values of every branch; of a counted one, all items in one array.
        offsets
            Offsets, shape ``(n_entries + 1,)``, by counter.
        """
        return [
            encode_basket(
                record.leaf, self.name, columns[record.leaf.name],
                offsets[record.leaf.counter] if record.leaf.counter else None,
                compression=self._file.compression, datime=self._file.datime,
            )
            for record in self._branches
        ]  # fmt: skip

    def write(self, baskets: Sequence[Basket]) -> None:
        """Write the baskets of one cluster, which :meth:`encode` made."""
        for record, one, seek in zip(
            self._branches, baskets, self._file.place(baskets), strict=True
        ):
            record.seeks.append(seek)
            record.nbytes.append(one.nbytes)
            record.total_bytes += one.total_bytes
            record.maximum = max(record.maximum, one.maximum)
            if record.leaf.counter:
                record.offset_bytes = max(record.offset_bytes, 4 * (one.entries + 1))
        self._clusters.append(self._clusters[-1] + baskets[0].entries)

    def close(self) -> None:
        """Write the tree itself."""
        raw = encode_tree(self.name, self.title, self._branches, self._clusters)
        self._file.add_object("TTree", self.name, self.title, raw)
