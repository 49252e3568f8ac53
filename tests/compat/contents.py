"""What a tree holds: every column's values, types and masks, to compare two ways of reading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot
import xxhash

from hepcache.formats.registry import forget_sources
from hepcache.process.worker_state import worker_state

TREES = ("TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple")


def digest(array: Any) -> tuple[str, str]:
    """Return an array's type, and a hash of its values, its layout and its masks."""
    form, length, buffers = ak.to_buffers(ak.to_packed(array))
    state = xxhash.xxh3_128(json.dumps([form.to_dict(), length], default=str).encode())
    for name in sorted(buffers):
        state.update(name.encode())
        state.update(np.ascontiguousarray(buffers[name]))
    return str(ak.type(array)), state.hexdigest()


def columns(events: Any) -> dict[str, Any]:
    """Digest every column of a chunk of a dataset: a processor.

    A column that can't be read is the type of the exception instead, as a
    script would see it that goes on.
    """
    found: dict[str, Any] = {".": (len(events), tuple(events.fields))}
    for column in events.fields:
        try:
            array = ak.materialize(events[column])
        except Exception as error:
            found[column] = type(error).__name__
        else:
            found[column] = digest(array)
    return {events.metadata["dataset"]: {events.metadata["entrystart"]: found}}


def trees(path: Path) -> list[str]:
    """Return the paths of all trees and ntuples in a file, with a cycle where one has several."""
    with uproot.open(path) as file:
        kinds = file.classnames(recursive=True, cycle=True)
    names = [name for name, kind in kinds.items() if kind in TREES]
    newest: dict[str, str] = {}
    for name in names:
        plain, _, cycle = name.rpartition(";")
        newest[plain] = max(newest.get(plain, cycle), cycle, key=int)
    return [
        plain if newest[plain] == cycle else f"{plain};{cycle}"
        for plain, _, cycle in (name.rpartition(";") for name in names)
    ]


def forget_what_is_known() -> None:
    """Make this process as one that starts: it knows neither files nor their forms."""
    worker_state().cache.flush()
    forget_sources()
    worker_state().forms.forget()
