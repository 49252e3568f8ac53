"""Files of tables whose datasets have attributes, and whose groups have strings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hepcache.hdf5.inputs import survey

__all__ = ["add_attributes", "add_strings", "survey_ratio"]

_TURNS = 9


def add_attributes(paths: Sequence[Path]) -> None:
    """Give every dataset of files two attributes: a number, and a text."""
    for path in paths:
        with h5py.File(path, "r+") as file:
            for name, group in file.items():
                for column, dataset in group.items():
                    dataset.attrs["version"] = np.int32(3)
                    dataset.attrs["description"] = f"{column} of {name}"


def add_strings(paths: Sequence[Path]) -> None:
    """Give every group of files with rows texts of a fixed and of a variable length."""
    options: dict[str, Any] = {"maxshape": (None, 1), "chunks": (128, 1), "compression": 6}
    for path in paths:
        with h5py.File(path, "r+") as file:
            for group in file.values():
                events = group["evt"][:, 0].tolist()
                if not events:
                    continue
                fixed = np.array([f"event {event}" for event in events], "S16")[:, None]
                group.create_dataset("label", data=fixed, **options)
                words = ["x" * (event % 7) for event in events]
                group.create_dataset(
                    "word",
                    data=np.array(words, object)[:, None],
                    dtype=h5py.string_dtype(),
                    **options,
                )


def survey_ratio(with_attributes: Path, without: Path) -> tuple[float, list[dict[str, Any]]]:
    """Return how many times as long the survey of a file with attributes takes, and rows.

    The two take turns; medians count.
    """
    taken: dict[str, list[float]] = {"with attributes": [], "without": []}
    for _ in range(_TURNS):
        for name, path in zip(taken, (with_attributes, without), strict=True):
            begin = time.perf_counter()
            survey(str(path))
            taken[name].append(time.perf_counter() - begin)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    rows: list[dict[str, Any]] = [
        {"case": "attributes", "what": f"survey: {name}", "files": 1, "workers": 1, "wall_s": one}
        for name, one in median.items()
    ]
    return median["with attributes"] / median["without"], rows
