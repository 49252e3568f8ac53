"""Datasets that hold no rows but say in which files they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h5py import h5p, h5s

if TYPE_CHECKING:
    from hepcache.hdf5.plan import Plan

__all__ = ["name_from", "virtual_creation"]


def virtual_creation(plan: Plan, number: int, directory: Path) -> Any:
    """Return the creation properties of a dataset that joins the inputs' rows.

    Parameters
    ----------
    plan
        What is written.
    number
        Of the dataset's column.
    directory
        Where the output lies.
    """
    column = plan.schema.columns[number]
    edges = plan.edges[:, column.group].tolist()
    zeros = tuple(0 for _ in column.tail)
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    for file, tables in enumerate(plan.inputs.tables):
        length = edges[file + 1] - edges[file]
        if not length:
            continue
        shape = (length, *column.tail)
        into = h5s.create_simple((edges[-1], *column.tail))
        into.select_hyperslab((edges[file], *zeros), shape)
        name = os.fsencode(name_from(directory, tables.path))
        creation.set_virtual(into, name, b"/" + column.path, h5s.create_simple(shape))
    return creation


def name_from(directory: Path, path: str) -> str:
    """Return how a file in a directory names another: below it relatively, else in full."""
    full, base = Path(path).resolve(), directory.resolve()
    # HDF5 takes a percent sign in the name for a pattern.
    name = str(full.relative_to(base) if full.is_relative_to(base) else full)
    return name.replace("%", "%%")
