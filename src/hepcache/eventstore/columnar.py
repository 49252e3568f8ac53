"""A dataset's events as entries of one table: which columns there are, and where entries are.

The columns are named as branches of NanoAOD are: ``Muon_pt`` is column ``pt`` of the
products labelled ``Muon``, ``nMuon`` counts their rows; the products labelled ``event`` give
their columns without a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import StoreError
from hepcache.eventstore.schema import Schema, flat_dtype
from hepcache.eventstore.store import Store
from hepcache.eventstore.survey import Survey

__all__ = ["INDEX", "ColumnarEvents", "StoredColumn", "columnar", "stamp_of"]

INDEX = ("run", "subrun", "luminosityBlock", "event")
"""Columns that tell events apart; CMS's name of a subrun is there as well."""

ALONE = "event"
"""Label of products whose columns are named without it."""

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column.

    Attributes
    ----------
    name
        As analyses see it.
    type
        Type of one value, in awkward's language.
    label, field, schema
        The products, their column and their type; of a counter the column is ``None``,
        and all three are where the column is one of :data:`INDEX`.
    counter
        Name of the column that counts the values of each event; ``None`` where there is
        one for each.
    """

    name: str
    type: str
    label: str | None = None
    field: str | None = None
    schema: Schema | None = None
    counter: str | None = None

    @property
    def form(self) -> ak.forms.Form:
        """The form of the column of all events."""
        inner = _form(self.type)
        return inner if self.counter is None else ak.forms.ListOffsetForm("i64", inner)

    @property
    def is_plain(self) -> bool:
        """Whether a value is one number."""
        plain = flat_dtype(self.type)
        return plain is not None and plain[1] == ()


@dataclass(frozen=True)
class ColumnarEvents:
    """Events of a dataset, in the order of run, subrun and event.

    Attributes
    ----------
    stamp
        Changes with every write to events or products of the dataset.
    subruns
        Keys of the subruns that have events.
    starts
        Entry of the first event of each, and the number of all: shape ``(n_subruns + 1,)``.
    columns
        Name to column.
    left_out
        Name to the reason why it is no column.
    size_bytes
        Of all products of the dataset as they are stored.
    """

    stamp: str
    subruns: tuple[bytes, ...]
    starts: NDArray[np.int64]
    columns: dict[str, StoredColumn]
    left_out: dict[str, str]
    size_bytes: int

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pieces(self, start: int, stop: int) -> list[tuple[bytes, int, int]]:
        """Return subruns, and places of events in them, of the entries ``start`` to ``stop``."""
        found = []
        at = max(int(self.starts.searchsorted(start, side="right")) - 1, 0)
        while at < len(self.subruns) and self.starts[at] < stop:
            first, last = int(self.starts[at]), int(self.starts[at + 1])
            if max(start, first) < min(stop, last):
                found.append(
                    (self.subruns[at], max(start, first) - first, min(stop, last) - first)
                )
            at += 1
        return found


def stamp_of(store: Store, dataset: bytes) -> str:
    """Return what changes with every write to events or products of a dataset."""
    return _stamp(shard.stamp(dataset) for shard in store.shards)


def columnar(store: Store, dataset: bytes, numbers: Sequence[int] = ()) -> ColumnarEvents:
    """Return which columns the events of a dataset have, and where its entries are.

    Parameters
    ----------
    store
        The store.
    dataset
        The dataset's UUID.
    numbers
        Run, or run and subrun, for less than the whole dataset.

    Raises
    ------
    StoreError
        The dataset is being written.
    """
    for _ in range(_ATTEMPTS):
        surveys = [shard.survey(dataset) for shard in store.shards]
        stamp = _stamp(one.stamp for one in surveys)
        if stamp_of(store, dataset) == stamp:
            return _table(stamp, dataset, numbers, surveys)
    raise StoreError(store.url, "the dataset is being written right now; try again later")


def _stamp(stamps: Iterable[bytes]) -> str:
    digest = xxhash.xxh3_128()
    for one in stamps:
        digest.update(len(one).to_bytes(1, "little") + one)
    return digest.hexdigest()


def _table(
    stamp: str, dataset: bytes, numbers: Sequence[int], surveys: Sequence[Survey]
) -> ColumnarEvents:
    prefix = dataset + b"".join(number.to_bytes(8, "big") for number in numbers)
    runs = {key for one in surveys for key in one.runs}
    listed = {key for one in surveys for key in one.subruns if key[:24] in runs}
    counts = {key: count for one in surveys for key, count in one.events if key in listed}
    subruns = tuple(sorted(key for key in counts if key.startswith(prefix)))
    starts = np.zeros(len(subruns) + 1, np.int64)
    np.cumsum([counts[key] for key in subruns], out=starts[1:])
    products: dict[str, Counter[Schema]] = {}
    for one in surveys:
        for label, schema, count in one.products:
            products.setdefault(label, Counter())[schema] += count
    columns, left_out = _columns(products, sum(counts.values()))
    return ColumnarEvents(
        stamp, subruns, starts, {**_index(subruns), **columns}, left_out,
        sum(one.size_bytes for one in surveys),
    )  # fmt: skip


def _index(subruns: Sequence[bytes]) -> dict[str, StoredColumn]:
    """Return the columns of numbers; 32 bits where they suffice, as in files of CMS."""
    small = all(key[at : at + 4] == b"\0\0\0\0" for key in subruns for at in (16, 24))
    type_ = "uint32" if small else "uint64"
    return {name: StoredColumn(name, "uint64" if name == "event" else type_) for name in INDEX}


def _columns(
    products: dict[str, Counter[Schema]], events: int
) -> tuple[dict[str, StoredColumn], dict[str, str]]:
    found: list[StoredColumn] = []
    left_out: dict[str, str] = {}
    for label, schemas in sorted(products.items()):
        if len(schemas) > 1:
            left_out[label] = "its products are of several types"
            continue
        ((schema, count),) = schemas.items()
        if schema.kind not in ("awkward", "numpy"):
            left_out[label] = f"its products are {schema.kind}"
            continue
        # A product that not every event has is a list of none or one.
        counter = f"n{label}" if schema.layout == "rows" or count != events else None
        if counter is not None:
            found.append(StoredColumn(counter, "int32", label, None, schema))
        for field, type_ in schema.columns:
            name = field if label == ALONE and field else f"{label}_{field}" if field else label
            column = StoredColumn(name, type_, label, field, schema, counter)
            if _is_simple(column.form):
                found.append(column)
            else:
                left_out[name] = f"it holds {type_}"
    return _distinct(found, left_out), left_out


def _distinct(found: Sequence[StoredColumn], left_out: dict[str, str]) -> dict[str, StoredColumn]:
    """Return columns by name: none of those that share one, but for counters."""
    columns = {one.name: one for one in found if one.field is None and one.name not in INDEX}
    times = Counter(one.name for one in found)
    for one in found:
        if one.name in INDEX or (one.field is not None and times[one.name] > 1):
            left_out[one.name] = "several products give a column of this name"
        else:
            columns.setdefault(one.name, one)
    return columns


@lru_cache(4096)
def _form(type_: str) -> Any:
    # The parser takes milliseconds, and thousands of columns are of few types.
    return ak.forms.from_type(ak.types.from_datashape(type_, highlevel=False))


def _is_simple(form: Any) -> bool:
    """Tell whether a form is one that coffea takes: numbers, in lists or not."""
    while isinstance(form, ak.forms.ListOffsetForm | ak.forms.RegularForm):
        if form.parameters:
            return False
        form = form.content
    return (
        isinstance(form, ak.forms.NumpyForm)
        and not form.parameters
        and np.dtype(form.primitive).kind in "biuf"
    )
