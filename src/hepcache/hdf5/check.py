"""Whether partition keys are what they should be, by nothing but what is in the file.

This shares no code with what makes keys: it goes the other way, from a key to
the event that it names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import TableFileError
from hepcache.hdf5.survey import understood_file

__all__ = ["KeyCheck", "check_keys"]

_EVENT_COLUMNS = ("run", "subrun", "cycle", "batch")
_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The key of one group.

    Attributes
    ----------
    name
        Of the key.
    rows
        Of the group.
    problem
        What is wrong, or ``""``.
    """

    name: str
    rows: int
    problem: str = ""


def check_keys(
    path: str | os.PathLike[str], *, key: str = "evt", events: str = "spill"
) -> list[KeyCheck]:
    """Check that keys never fall, and name the events of their rows.

    Parameters
    ----------
    path
        A file with partition keys.
    key, events
        Of what they were made.

    Returns
    -------
    list of KeyCheck
        One per group that has rows or a key.

    Raises
    ------
    TableFileError
        The file can't be read, or has no table of events.
    """
    name = os.fspath(path)
    found: list[KeyCheck] = []
    with understood_file(name), h5py.File(name, "r") as file:
        spill = file.get(events)
        if not isinstance(spill, h5py.Group) or key not in spill:
            raise TableFileError(name, f"has no dataset {events}/{key}")
        listed = {one: _flat(spill[one]) for one in (*_EVENT_COLUMNS, key) if one in spill}

        def visit(path: str, group: Any) -> None:
            if isinstance(group, h5py.Group) and path:
                rows = max((len(one) for one in group.values() if _is_table(one)), default=0)
                own = f"{key}.seq"
                if own in group:
                    problem = _problem(group, own, key, listed)
                    found.append(KeyCheck(f"/{path}/{own}", rows, problem))
                elif rows:
                    found.append(KeyCheck(f"/{path}/{own}", rows, "is not there"))

        file.visititems(visit)
    return found


def _is_table(one: Any) -> bool:
    return isinstance(one, h5py.Dataset) and bool(one.shape)


def _flat(dataset: Any, start: int = 0, stop: int | None = None) -> NDArray[Any]:
    values: NDArray[Any] = dataset[start:stop]
    return values.reshape(len(values), -1)[:, 0] if len(values) else np.zeros(0, dataset.dtype)


def _problem(group: Any, own: str, key: str, listed: dict[str, NDArray[Any]]) -> str:
    keys = group[own]
    if key not in group or len(keys) != len(group[key]):
        return f"has {len(keys)} rows, which is not the number of rows of {key}"
    last, count = -1, len(listed[key])
    for start in range(0, len(keys), _ROWS):
        numbers = _flat(keys, start, start + _ROWS)
        if numbers.min() < 0 or numbers.max() >= count:
            return f"names events that are none of the {count}"
        falls = np.flatnonzero(np.diff(numbers, prepend=last) < 0)
        if len(falls):
            return f"falls at row {start + int(falls[0])}"
        last = int(numbers[-1])
        for name, values in listed.items():
            if name not in group:
                continue
            wrong = np.flatnonzero(values[numbers] != _flat(group[name], start, start + _ROWS))
            if len(wrong):
                return f"names another {name} than that of row {start + int(wrong[0])}"
    return ""
