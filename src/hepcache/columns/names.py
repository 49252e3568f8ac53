"""Which columns patterns mean, in files of any number of branch lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import filter as matching

from hepcache.columns.opening import column_names
from hepcache.errors import ConfigurationError
from hepcache.fileset import Catalogue, FileRecord

__all__ = ["columns_of", "expand"]

_KIND = "column-names"


def columns_of(catalogue: Catalogue, records: Iterable[FileRecord]) -> list[str]:
    """Return the names of the columns of any of some files, sorted.

    Parameters
    ----------
    catalogue
        Where the names are kept for every branch list, so that one file of
        each is opened only the first time.
    records
        The files.

    Raises
    ------
    OriginError
        A file of a new branch list can't be read.
    """
    one_of_each = {record.fingerprint: record for record in records}
    return sorted({name for record in one_of_each.values() for name in _names(catalogue, record)})


def expand(patterns: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the columns that names and patterns mean, each once, in order.

    Parameters
    ----------
    patterns
        Names, or patterns as in a shell.
    there
        All columns that there are.

    Raises
    ------
    ConfigurationError
        One matches nothing; the message names what comes near.

    Examples
    --------
    >>> expand(["Jet_*", "nJet", "Jet_pt"], ["Jet_eta", "Jet_pt", "nJet"])
    ['Jet_eta', 'Jet_pt', 'nJet']
    """
    columns: dict[str, None] = {}
    names = set(there)
    for pattern in patterns:
        matched = [pattern] if pattern in names else matching(there, pattern)
        if not matched:
            near = get_close_matches(pattern, there, 3)
            hint = f" such as {', '.join(near)}" if near else ""
            raise ConfigurationError("columns", f"columns of the files{hint}", pattern)
        columns.update(dict.fromkeys(matched))
    return list(columns)


def _names(catalogue: Catalogue, record: FileRecord) -> list[str]:
    kept = catalogue.blob_get(_KIND, record.fingerprint)
    if kept is not None:
        return [str(name) for name in json.loads(kept)]
    names = column_names(record)
    catalogue.blob_put(_KIND, record.fingerprint, json.dumps(names).encode())
    return names
