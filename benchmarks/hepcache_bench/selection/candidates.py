"""Which slices are candidates for an electron neutrino: the record, and its test.

The structure is that of the published study: of an event the products are
read, a record is built of them for every slice, every slice is tested, and
the numbers of those accepted are kept. The cuts are those that analyses of
this kind make: quality, containment, a vertex in the fiducial volume, an
energy window, an identifier, and a rejection of cosmic rays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRODUCTS", "Record", "Rows", "accepted_ids", "build_record", "is_candidate"]

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "rec.slc": ("subevt", "nhit", "ncontplanes", "calE"),
    "rec.sel.cvnloosepreselptp": ("subevt", "nueid", "cosmicid"),
    "rec.energy.nue": ("subevt", "E"),
    "rec.vtx.elastic": ("subevt", "vtx.x", "vtx.y", "vtx.z"),
    "rec.vtx.elastic.fuzzyk.png": ("subevt", "len", "gap", "shwlid.width"),
}
"""Classes and their columns that the selection reads."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Rows:
    """One class of some events.

    Attributes
    ----------
    event
        Place of each row's event, shape ``(n_rows,)``, rising.
    columns
        Name to values, shape ``(n_rows,)``.
    """

    event: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of every slice, shape ``(n_slices,)`` each; ``nan`` where nothing is.

    Attributes
    ----------
    event, slice_number
        Place of its event, and its number in it.
    hits, planes, calorimetric_gev
        Size and energy.
    nue_score, cosmic_score
        Of the networks.
    energy_gev
        Of the neutrino, were it one.
    vertex_cm
        Shape ``(n_slices, 3)``.
    prongs, longest_cm, gap_cm, width_cm
        Number of prongs, and of the longest one: length, gap to the vertex, width.
    """

    event: NDArray[np.int64]
    slice_number: NDArray[np.int64]
    hits: NDArray[Any]
    planes: NDArray[Any]
    calorimetric_gev: Floats
    nue_score: Floats
    cosmic_score: Floats
    energy_gev: Floats
    vertex_cm: Floats
    prongs: NDArray[np.int64]
    longest_cm: Floats
    gap_cm: Floats
    width_cm: Floats

    def __len__(self) -> int:
        return len(self.event)


def build_record(tables: Mapping[str, Rows]) -> Record:
    """Bring the classes together, slice by slice.

    Parameters
    ----------
    tables
        The classes of :data:`PRODUCTS`, of the same events.
    """
    slices = tables["rec.slc"]
    keys = _keys(slices)
    order = np.argsort(keys, kind="stable")
    scores = _by_slice(keys, order, tables["rec.sel.cvnloosepreselptp"], ("nueid", "cosmicid"))
    energy = _by_slice(keys, order, tables["rec.energy.nue"], ("E",))
    vertex = _by_slice(keys, order, tables["rec.vtx.elastic"], ("vtx.x", "vtx.y", "vtx.z"))
    prongs = tables["rec.vtx.elastic.fuzzyk.png"]
    at = _places(keys, order, prongs)
    # Rows of one slice in the order of their length: the last one written is the longest.
    length = np.asarray(prongs.columns["len"], np.float64)
    rising = np.argsort(length, kind="stable")
    longest = np.full((len(keys), 3), np.nan)
    names = ("len", "gap", "shwlid.width")
    longest[at[rising]] = np.stack([prongs.columns[name] for name in names], axis=1)[rising]
    return Record(
        slices.event,
        np.asarray(slices.columns["subevt"], np.int64),
        slices.columns["nhit"],
        slices.columns["ncontplanes"],
        slices.columns["calE"],
        scores[:, 0],
        scores[:, 1],
        energy[:, 0],
        vertex,
        np.bincount(at, minlength=len(keys)).astype(np.int64),
        longest[:, 0],
        longest[:, 1],
        longest[:, 2],
    )


def is_candidate(record: Record) -> NDArray[np.bool_]:
    """Test every slice; comparisons with ``nan`` are false, as in the published cuts."""
    x, y, z = record.vertex_cm.T
    quality = (record.hits > 30) & (record.hits < 150) & (record.planes > 2)
    contained = (np.abs(x) < 720) & (np.abs(y) < 720) & (z > 50) & (z < 5450)
    shower = (record.prongs > 0) & (record.longest_cm > 100) & (record.longest_cm < 500)
    shower &= (record.gap_cm < 100) & (record.width_cm > 1)
    energy = (record.energy_gev > 1) & (record.energy_gev < 4) & (record.calorimetric_gev > 0.3)
    accepted: NDArray[np.bool_] = (
        quality
        & contained
        & shower
        & energy
        & (record.nue_score > 0.8)
        & (record.cosmic_score < 0.4)
    )
    return accepted


def accepted_ids(
    record: Record, run: NDArray[Any], subrun: NDArray[Any], event: NDArray[Any]
) -> list[tuple[int, int, int, int]]:
    """Return run, subrun, event and slice of all candidates.

    Parameters
    ----------
    record
        The slices.
    run, subrun, event
        Of the events, shape ``(n_events,)`` each.
    """
    chosen = np.flatnonzero(is_candidate(record))
    at = record.event[chosen]
    columns = (run[at], subrun[at], event[at], record.slice_number[chosen])
    return list(zip(*(one.tolist() for one in columns), strict=True))


def _keys(rows: Rows) -> NDArray[np.int64]:
    """Return a number for each row's slice."""
    return (rows.event << 16) | np.asarray(rows.columns["subevt"], np.int64)


def _places(slices: NDArray[np.int64], order: NDArray[np.int64], rows: Rows) -> NDArray[np.int64]:
    """Return to which slice each row belongs.

    Raises
    ------
    ValueError
        A row belongs to none.
    """
    if not len(rows.event):
        return np.zeros(0, np.int64)
    keys = _keys(rows)
    at = np.minimum(np.searchsorted(slices, keys, sorter=order), len(slices) - 1)
    if not len(slices) or (slices[order[at]] != keys).any():
        raise ValueError("a row belongs to a slice that rec.slc does not list")
    places: NDArray[np.int64] = order[at]
    return places


def _by_slice(
    slices: NDArray[np.int64], order: NDArray[np.int64], rows: Rows, names: tuple[str, ...]
) -> Floats:
    """Return columns of a class with at most one row per slice, ``nan`` where it has none."""
    values = np.full((len(slices), len(names)), np.nan)
    at = _places(slices, order, rows)
    for number, name in enumerate(names):
        values[at, number] = rows.columns[name]
    return values
