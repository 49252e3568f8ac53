"""Tables of reconstructed slices, with what the selection of neutrino candidates reads.

A slice is what the reconstruction takes for one interaction: an event of the
far detector has few, most of them cosmic rays, and a class has one row for
each of them, or one for each of its prongs. Values have the shape of real
ones, with ``nan`` or -5 where nothing was found; about one slice in two
hundred passes the selection of :mod:`hepcache.bench.selection.candidates`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["slice_tables"]

Table = dict[str, NDArray[Any]]
_FAR_HALF_CM, _FAR_LENGTH_CM = 750.0, 5962.0


def slice_tables(
    events: int, slices: float, rng: np.random.Generator
) -> dict[str, tuple[NDArray[np.int64], Table]]:
    """Return classes of slices.

    Parameters
    ----------
    events
        Number of events.
    slices
        Mean number of slices of an event; every event has at least one.
    rng
        Of the values.

    Returns
    -------
    dict
        Name of a class to the event of each row, shape ``(n_rows,)``, and its columns.
    """
    per_event = 1 + rng.poisson(max(0.0, slices - 1), events)
    event = np.repeat(np.arange(events), per_event)
    first = np.repeat(np.cumsum(per_event) - per_event, per_event)
    subevt = (np.arange(len(event)) - first).astype(np.uint16)
    signal = rng.random(len(event)) < 0.008
    kept = rng.random(len(event)) < 0.9  # where a vertex was found
    vertex = np.flatnonzero(kept)
    prongs = 1 + rng.poisson(1.4, len(vertex))
    prong = np.repeat(vertex, prongs)
    number = np.arange(len(prong)) - np.repeat(np.cumsum(prongs) - prongs, prongs)
    return {
        "rec.slc": (event, {"subevt": subevt, **_slices(signal, rng)}),
        "rec.sel.cvnloosepreselptp": (event, {"subevt": subevt, **_scores(signal, rng)}),
        "rec.energy.nue": (event, {"subevt": subevt, **_energies(signal, rng)}),
        "rec.vtx.elastic": (event[vertex], {"subevt": subevt[vertex], **_vertices(vertex, rng)}),
        "rec.vtx.elastic.fuzzyk.png": (
            event[prong],
            {
                "subevt": subevt[prong],
                "rec.vtx.elastic.fuzzyk.png_idx": number.astype(np.uint16),
                **_prongs(signal[prong], rng),
            },
        ),
    }


def _slices(signal: NDArray[np.bool_], rng: np.random.Generator) -> Table:
    n = len(signal)
    hits = np.where(signal, rng.poisson(90, n), rng.geometric(0.012, n)).astype(np.uint32)
    return {
        "nhit": hits,
        "ncontplanes": (hits // 3).astype(np.uint32),
        "calE": (hits * rng.normal(0.018, 0.003, n)).astype(np.float32),
        "meantime": rng.uniform(25_000, 475_000, n).astype(np.float32),
    }


def _scores(signal: NDArray[np.bool_], rng: np.random.Generator) -> Table:
    n = len(signal)
    nue = np.where(signal, rng.beta(12, 1, n), rng.beta(0.4, 6, n)).astype(np.float32)
    cosmic = np.where(signal, rng.beta(0.5, 9, n), rng.beta(6, 0.5, n)).astype(np.float32)
    none = rng.random(n) < 0.15
    nue[none], cosmic[none] = np.nan, np.nan  # too small for the network
    return {"nueid": nue, "cosmicid": cosmic}


def _energies(signal: NDArray[np.bool_], rng: np.random.Generator) -> Table:
    n = len(signal)
    energy = np.where(signal, rng.normal(2.0, 0.5, n), rng.exponential(1.1, n))
    energy[rng.random(n) < 0.02] = np.nan
    return {"E": energy.astype(np.float32), "hadE": (energy * 0.3).astype(np.float32)}


def _vertices(vertex: NDArray[np.int64], rng: np.random.Generator) -> Table:
    n, half = len(vertex), _FAR_HALF_CM
    return {
        "vtx.x": rng.uniform(-half, half, n).astype(np.float32),
        "vtx.y": rng.uniform(-half, half, n).astype(np.float32),
        "vtx.z": rng.uniform(0, _FAR_LENGTH_CM, n).astype(np.float32),
    }


def _prongs(signal: NDArray[np.bool_], rng: np.random.Generator) -> Table:
    n = len(signal)
    length = np.where(signal, rng.normal(250, 60, n), rng.exponential(160, n))
    width = np.where(signal, rng.normal(5, 1, n), rng.exponential(2, n))
    for values in (length, width):
        values[rng.random(n) < 0.05] = -5
    return {
        "len": length.astype(np.float32),
        "gap": rng.exponential(12, n).astype(np.float32),
        "shwlid.width": width.astype(np.float32),
        "calE": rng.exponential(0.6, n).astype(np.float32),
    }
