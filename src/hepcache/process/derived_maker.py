"""Derived columns that a run has used, made again for the next: the calls that returned them.

A worker sends back each call of a marked function once: the function and what it was given, but
no events. Of the last run the user's client keeps them, beside the catalogue. A
:class:`DerivedMaker` is a processor that does nothing but these calls.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from hepcache.credentials import pickled_credentials
from hepcache.errors import LostResultsError
from hepcache.results.derived import DERIVED, DerivedColumn, columns_of
from hepcache.results.store import ResultStore
from hepcache.telemetry import DerivedUse

logger = logging.getLogger(__name__)

CALLS = "hepcache-calls"
"""Key under which a set of (dataset, derived column's name, pickled call) travels."""

_MOST_BYTES = 8 << 20
_WORK = hashlib.blake2b(b"calls of the last run", digest_size=16).hexdigest()
_RANGES = [(0, 1)]
_CAPACITY_BYTES = 1 << 50

Call = tuple[str, str, bytes]


class CallLog:
    """The calls of marked functions in one chunk.

    Parameters
    ----------
    dataset
        The chunk's dataset.
    known
        Datasets and names of derived columns whose calls need not be sent.
    """

    def __init__(self, dataset: str, known: Collection[tuple[str, str]]) -> None:
        self._dataset = dataset
        self._known = known
        self._calls: dict[str, bytes] = {}

    def note(
        self, name: str, column: DerivedColumn, given: tuple[Any, ...], files: Collection[str]
    ) -> None:
        """Note a call by the name of what it returned, and the files that were read for that."""
        if name not in self._calls:
            known = (self._dataset, name) in self._known
            self._calls[name] = b"" if known else _pickled(column, given, files)

    @property
    def calls(self) -> set[Call]:
        """The calls; what is known, or can't be sent, is empty."""
        return {(self._dataset, name, call) for name, call in self._calls.items()}

    @property
    def sent(self) -> set[tuple[str, str]]:
        """Datasets and names of those that are not empty."""
        return {(self._dataset, name) for name, call in self._calls.items() if call}


def _pickled(column: DerivedColumn, given: tuple[Any, ...], files: Collection[str]) -> bytes:
    """Return a call to send; nothing where it can't be pickled, is too large or holds secrets."""
    try:
        found = cloudpickle.dumps((column, given, frozenset(files)))
    except Exception as error:
        logger.info("%r is not remembered: %r", column, error)
        return b""
    if len(found) > _MOST_BYTES or pickled_credentials(found):
        logger.info("%r is not remembered: it is too large, or holds credentials", column)
        return b""
    return bytes(found)


@dataclass(frozen=True)
class DerivedMaker:
    """A processor that makes the derived columns that a run has used, and returns nothing else.

    ``schema``, ``iteritems_options``: as the run had them.
    ``calls``: pickled calls by the derived columns' names.
    ``datasets``: names of derived columns by dataset. Of a dataset that the run had not, all are
    made that can be.
    ``lost``: functions whose calls are not known: what they were given holds credentials, say.

    Notes
    -----
    A function that fails on a chunk is told by the record, and the others are made.
    """

    schema: Any
    iteritems_options: Mapping[str, Any]
    calls: Mapping[str, bytes]
    datasets: Mapping[str, Collection[str]]
    lost: Collection[str] = ()

    @property
    def functions(self) -> list[str]:
        """Names of the functions that are called."""
        return sorted({name.partition(DERIVED)[0] for name in self.calls})

    def __call__(self, events: Any) -> dict[str, int]:
        """Make the derived columns of one chunk; return its number of events."""
        columns = columns_of(events)
        if columns is not None:
            wanted = self.datasets.get(str(events.metadata["dataset"]), self.calls)
            for name in sorted(self.calls.keys() & set(wanted)):
                try:
                    column, given, files = cloudpickle.loads(self.calls[name])
                    columns.make(column, given, events, files)
                except Exception as error:
                    use = columns.log.derived.setdefault(name.partition(DERIVED)[0], DerivedUse())
                    use.not_stored(f"{type(error).__name__}: {error}")
        return {"events": len(events)}


def has_calls(directory: Path) -> bool:
    """Tell whether the calls of a run are kept in a directory, as far as names tell."""
    return any((directory / _WORK).glob("*"))


def save_calls(
    directory: Path,
    calls: Iterable[Call],
    known: Collection[tuple[str, str]],
    schema: Any,
    iteritems_options: Mapping[str, Any],
) -> dict[str, dict[str, bool]]:
    """Keep the calls of a run in place of those of the one before.

    ``known``: datasets and names whose calls were not sent, because they are kept there.
    It returns, by dataset and name, whether the call is kept.
    Raises ``ResultNotStoredError``: the disk is full; ``CacheDirectoryError``: others could reach
    into the directory.
    """
    sent: dict[str, bytes] = {}
    used: defaultdict[str, set[str]] = defaultdict(set)
    for dataset, name, call in calls:
        used[dataset].add(name)
        if call:
            sent[name] = call
    names = set().union(*used.values()) if used else set()
    before: dict[str, bytes] = {}
    if known and (found := _load(directory)) is not None:
        before = found["calls"]
    kept = {name: call for name, call in {**before, **sent}.items() if name in names}
    if sent or before.keys() - names:
        context = cloudpickle.dumps((schema, dict(iteritems_options)))
        value = {"context": context, "calls": kept}
        if pickled_credentials(context):
            kept = {}
        else:
            ResultStore(directory, _CAPACITY_BYTES).put(_WORK, _WORK, _RANGES, value)
    return {
        dataset: {name: name in kept for name in sorted(of_dataset)}
        for dataset, of_dataset in sorted(used.items())
    }


def load_maker(directory: Path, used: Mapping[str, Mapping[str, bool]]) -> DerivedMaker | None:
    """Return what makes the derived columns of the last run; ``None`` where it used none.

    ``used``: what :func:`save_calls` returned of it.
    """
    names = set().union(*used.values()) if used else set()
    if not names:
        return None
    found = _load(directory) or {"context": cloudpickle.dumps((None, {})), "calls": {}}
    schema, iteritems_options = cloudpickle.loads(found["context"])
    calls = {name: call for name, call in found["calls"].items() if name in names}
    return DerivedMaker(
        schema=schema,
        iteritems_options=iteritems_options,
        calls=calls,
        datasets={dataset: tuple(of_dataset) for dataset, of_dataset in used.items()},
        lost=sorted({name.partition(DERIVED)[0] for name in names - calls.keys()}),
    )


def _load(directory: Path) -> dict[str, Any] | None:
    """Return what is kept; nothing is unpickled that this user has not signed."""
    if not directory.is_dir():
        return None
    store = ResultStore(directory, _CAPACITY_BYTES)
    try:
        (found,) = store.load(store.holdings(_WORK), list)
    except (LostResultsError, ValueError):
        return None
    return found if isinstance(found, dict) else None
