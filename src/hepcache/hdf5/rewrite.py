"""Write one file anew with other chunks, or join files without copying a row."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from io import BytesIO
from pathlib import Path
from typing import Literal

import h5py

from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5.concat import check_names, concatenate_planned, understood
from hepcache.hdf5.gather import gather, survey_all
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.outcome import Concatenated, Progress
from hepcache.hdf5.place import OutputPlace
from hepcache.hdf5.pool import DaskClient, executor_for
from hepcache.hdf5.virtual import name_from

__all__ = ["link", "rechunk"]


def rechunk(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda _phase, _done, _total: None,
) -> Concatenated:
    """Write a file anew with other chunks or another compression.

    Parameters
    ----------
    path, out
        The file, and where the new one appears.
    options
        How it is written. Partition keys stay as they are.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concat.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As there.
    """
    return concatenate_planned(
        [os.fspath(path)],
        OutputPlace(Path(out)),
        options or TableOptions(),
        executor=executor,
        jobs=jobs,
        overwrite=overwrite,
        progress=progress,
        keep_keys=True,
    )


def link(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    how: Literal["virtual", "external"] = "virtual",
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    progress: Progress = lambda _phase, _done, _total: None,
) -> Concatenated:
    """Join files without copying: the output refers to them, so they must stay.

    Parameters
    ----------
    inputs, out
        The files. Those below the output's directory are named relatively to it.
    options
        ``key``, ``events`` and ``sort`` matter; keys are real datasets.
    how
        ``"virtual"`` makes one dataset of all rows, ``"external"`` one group per
        file, with the file's name.
    executor, jobs, overwrite, progress
        As in :func:`~hepcache.hdf5.concat.concatenate`.

    Raises
    ------
    ConfigurationError, TableFileError, TableMismatchError
        As there.
    """
    options = options or TableOptions()
    paths, place = [os.fspath(path) for path in inputs], OutputPlace(Path(out))
    if how == "virtual":
        return concatenate_planned(
            paths,
            place,
            options,
            executor=executor,
            jobs=jobs,
            overwrite=overwrite,
            progress=progress,
            virtual=True,
        )
    if how != "external":
        raise ConfigurationError("how", "virtual or external", how)
    check_names(paths, place.path)
    done = Concatenated(str(place.path), files=len(paths), groups=len(paths))
    with (
        understood(place.path),
        place.claimed(overwrite=overwrite),
        executor_for(executor, jobs) as workforce,
    ):
        found = gather(survey_all(paths, workforce), attributes=False, keep_keys=True)
        _link_externally(paths, place, overwrite=overwrite)
    done.datasets = len(found.schema.columns)
    done.finish()
    return done


def _link_externally(paths: Sequence[str], place: OutputPlace, *, overwrite: bool) -> None:
    names = [Path(path).stem for path in paths]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TableFileError(str(place.path), f"files of equal names: {', '.join(sorted(twice))}")
    place.discard()
    # A small file, made in memory: HDF5 itself knows no full disk.
    made = BytesIO()
    with h5py.File(made, "w", libver=("earliest", "v110")) as file:
        for name, path in zip(names, paths, strict=True):
            file[name] = h5py.ExternalLink(name_from(place.path.parent, path), "/")
    try:
        with place.part.open("wb") as part:
            part.write(made.getbuffer())
            part.flush()
            os.fsync(part.fileno())
    except BaseException:
        place.discard()
        raise
    place.publish(overwrite=overwrite)
