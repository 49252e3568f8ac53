"""What is in a file of tables, and what its room is used for."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from h5py import h5d, h5o

from hepcache.hdf5.library import library_tables, open_library
from hepcache.hdf5.model import text
from hepcache.hdf5.survey import understood_file

__all__ = ["FileInfo", "GroupInfo", "describe"]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group.

    Attributes
    ----------
    name
        Of the group.
    datasets, empty_datasets
        How many there are, and how many of them without a row.
    rows
        Of the longest dataset.
    raw_bytes, stored_bytes
        Of all rows, and of their chunks in the file.
    key
        The partition key, or ``""``.
    """

    name: str
    datasets: int
    empty_datasets: int
    rows: int
    raw_bytes: int
    stored_bytes: int
    key: str


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file.

    Attributes
    ----------
    path, size_bytes
        The file.
    groups
        All that hold datasets, in the file's order.
    """

    path: str
    size_bytes: int
    groups: tuple[GroupInfo, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it, with sums, as JSON-ready values."""
        groups = self.groups
        sums = {
            "groups": len(groups),
            "empty_groups": sum(not one.rows for one in groups),
            "datasets": sum(one.datasets for one in groups),
            "empty_datasets": sum(one.empty_datasets for one in groups),
            "raw_bytes": sum(one.raw_bytes for one in groups),
            "stored_bytes": sum(one.stored_bytes for one in groups),
        }
        sums["metadata_bytes"] = self.size_bytes - sums["stored_bytes"]
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            **sums,
            "by_group": [asdict(one) for one in groups],
        }


def describe(path: str | os.PathLike[str]) -> FileInfo:
    """Look at a file.

    Raises
    ------
    TableFileError
        It can't be read.
    """
    name = os.fspath(path)
    with understood_file(name):
        file = open_library(name)
        try:
            schema, lengths = library_tables(file, follow=True)
            own_number = h5o.get_info(file).fileno
            numbers: list[list[int]] = [[] for _ in schema.groups]
            for number, column in enumerate(schema.columns):
                numbers[column.group].append(number)
            groups = []
            for group, own in zip(schema.groups, numbers, strict=True):
                if not own:
                    continue
                filled = [n for n in own if lengths[n] or schema.columns[n].rank == 0]
                columns = schema.columns
                opened = (h5d.open(file, b"/" + columns[n].path) for n in filled)
                # What external links lead to takes no room here.
                stored = (one for one in opened if h5o.get_info(one).fileno == own_number)
                keys = [columns[n].name for n in own if columns[n].name.endswith(b".seq")]
                groups.append(
                    GroupInfo(
                        text(group.path),
                        len(own),
                        len(own) - len(filled),
                        max(int(lengths[n]) for n in own) if filled else 0,
                        sum(columns[n].row_bytes * max(1, int(lengths[n])) for n in filled),
                        sum(one.get_storage_size() for one in stored),
                        keys[0].decode("utf-8", "replace") if keys else "",
                    )
                )
        finally:
            file.close()
    return FileInfo(name, os.stat(name).st_size, tuple(groups))  # noqa: PTH116
