"""A dataset's events as entries of one table: its columns, and the subruns of its entries.

The columns are named as branches of NanoAOD are: ``Muon_pt`` is column ``pt`` of the
products labelled ``Muon``, ``nMuon`` counts their rows; the products labelled ``event`` give
their columns without a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import StoreError
from hepcache.eventstore.schema import Schema, flat_dtype
from hepcache.eventstore.shard.survey import Survey, dataset_stamp, survey_dataset
from hepcache.eventstore.store import Store

INDEX = ("run", "subrun", "luminosityBlock", "event")
"""Columns that tell events apart; CMS's name of a subrun is there as well."""

ALONE = "event"
"""Label of products whose columns are named without it."""

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column; it answers what coffea asks of a branch of a tree.

    ``label``, ``field``, ``schema``: the products, their column and their type. A counter has no
    field; the columns of :data:`INDEX` have none of the three.
    ``counter``: name of the column that counts the values of each event; ``None`` where there is
    one for each.
    """

    name: str
    type: str
    label: str | None = None
    field: str | None = None
    schema: Schema | None = None
    counter: str | None = None

    @property
    def title(self) -> str:
        """What the column is, for people."""
        return self.name

    @property
    def typename(self) -> str:
        """Its type, for people."""
        return self.type if self.counter is None else f"{self.type}[]"

    @property
    def interpretation(self) -> StoredColumn:
        """What has :meth:`awkward_form`."""
        return self

    def awkward_form(self, _file: Any = None) -> ak.forms.Form:
        """Return the form of the column of all events."""
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

    ``starts``: entry of the first event of each subrun, and the number of all: shape ``(n_subruns
    + 1,)``.
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
        """Return the subruns of the entries ``start`` to ``stop``, and positions in them."""
        found = []
        first = max(int(self.starts.searchsorted(start, side="right")) - 1, 0)
        for subrun, (begin, end) in enumerate(pairwise(self.starts[first:].tolist()), first):
            if begin >= stop:
                break
            low, high = max(start, begin) - begin, min(stop, end) - begin
            if low < high:
                found.append((self.subruns[subrun], low, high))
        return found


def stamp_of(store: Store, dataset: bytes) -> str:
    """Return the stamp of a dataset, which every write to its events or products changes."""
    return _stamp(shard.query(dataset_stamp, dataset) for shard in store.shards)


def columnar_events(store: Store, dataset: bytes, numbers: Sequence[int] = ()) -> ColumnarEvents:
    """Return the columns and entries of a dataset, or of one run or subrun of it.

    Raises ``StoreError``: the dataset is being written.
    """
    for _ in range(_ATTEMPTS):
        surveys = [shard.query(survey_dataset, dataset) for shard in store.shards]
        stamp = _stamp(survey.stamp for survey in surveys)
        if stamp_of(store, dataset) == stamp:
            return _table(stamp, dataset, numbers, surveys)
    raise StoreError(store.url, "the dataset is being written right now; try again later")


def _stamp(stamps: Iterable[bytes]) -> str:
    digest = xxhash.xxh3_128()
    for stamp in stamps:
        digest.update(len(stamp).to_bytes(1, "little") + stamp)
    return digest.hexdigest()


def _table(
    stamp: str, dataset: bytes, numbers: Sequence[int], surveys: Sequence[Survey]
) -> ColumnarEvents:
    prefix = dataset + b"".join(number.to_bytes(8, "big") for number in numbers)
    runs = {key for survey in surveys for key in survey.runs}
    listed = {key for survey in surveys for key in survey.subruns if key[:24] in runs}
    counts = {key: count for survey in surveys for key, count in survey.events if key in listed}
    subruns = tuple(sorted(key for key in counts if key.startswith(prefix)))
    starts = np.zeros(len(subruns) + 1, np.int64)
    np.cumsum([counts[key] for key in subruns], out=starts[1:])
    products: dict[str, Counter[Schema]] = {}
    for survey in surveys:
        for label, schema, count in survey.products:
            products.setdefault(label, Counter())[schema] += count
    columns, left_out = _columns(products, sum(counts.values()))
    return ColumnarEvents(
        stamp=stamp,
        subruns=subruns,
        starts=starts,
        columns={**_index(subruns), **columns},
        left_out=left_out,
        size_bytes=sum(survey.size_bytes for survey in surveys),
    )


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
            if _is_simple(column.awkward_form()):
                found.append(column)
            else:
                left_out[name] = f"it holds {type_}"
    return _distinct(found, left_out), left_out


def _distinct(found: Sequence[StoredColumn], left_out: dict[str, str]) -> dict[str, StoredColumn]:
    """Return columns by name, without columns that share one; counters may."""
    counters = (column for column in found if column.field is None)
    columns = {counter.name: counter for counter in counters if counter.name not in INDEX}
    times = Counter(column.name for column in found)
    for column in found:
        if column.name in INDEX or (column.field is not None and times[column.name] > 1):
            left_out[column.name] = "several products give a column of this name"
        else:
            columns.setdefault(column.name, column)
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
