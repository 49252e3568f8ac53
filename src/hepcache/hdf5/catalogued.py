"""What the catalogue asks of a file of tables, as it asks of a ROOT file.

``hepcache.fileset`` finds this module by its name, because it is a room below.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import xxhash

from hepcache.errors import BadFileError, TableFileError
from hepcache.fileset.freshness import Freshness
from hepcache.fileset.model import FileRecord
from hepcache.hdf5.columns import open_events

__all__ = ["describe"]

_CLUSTER_EVENTS = 1 << 14


def describe(path: str, tree: str | None, fresh: Freshness) -> FileRecord:
    """Describe the events of a file.

    Parameters
    ----------
    path
        The file.
    tree
        As of :func:`hepcache.hdf5.columns.open_events`; the record has it as it is here.
    fresh
        The file's state.

    Returns
    -------
    FileRecord
        HDF5 gives a file no UUID, so that of its place serves. The content's tag
        depends on the time of change: a copy is another content, as is what was touched.

    Raises
    ------
    BadFileError
        It can't be read, or has no partition keys.
    """
    try:
        columns = open_events(path, tree)
    except TableFileError as error:
        raise BadFileError({path: error.problem}) from error
    with closing(columns.tables) as tables:
        place = xxhash.xxh3_128_digest(str(Path(path).resolve()).encode())
        facts = (fresh.validator, tables.events, tables.layout, columns.fingerprint)
        events = tables.events
        return FileRecord(
            path=path,
            tree=(tree or tables.spill).strip("/"),
            uuid=str(uuid.UUID(bytes=place)),
            entries=events,
            clusters=(*range(0, events, _CLUSTER_EVENTS), events) if events else (0,),
            size=fresh.size,
            validator=fresh.validator,
            tag=xxhash.xxh3_64_hexdigest(repr(facts).encode()),
            fingerprint=columns.fingerprint,
        )
