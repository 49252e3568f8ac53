"""Concatenate files of tables: checked first, written in parallel, visible when complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import xxhash

from hepcache import __version__
from hepcache.errors import ConfigurationError, HepcacheError, TableFileError
from hepcache.hdf5.gather import Inputs, gather, raise_problems, same_files, survey_all
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.outcome import Concatenated, Progress
from hepcache.hdf5.output import Output
from hepcache.hdf5.partition import Keys, find_all_keys, key_groups
from hepcache.hdf5.place import OutputPlace
from hepcache.hdf5.plan import Plan, make_plan
from hepcache.hdf5.pool import DaskClient, executor_for, nothing, width
from hepcache.hdf5.sorting import sorted_inputs
from hepcache.hdf5.writer import Writer

__all__ = ["check_names", "concatenate", "concatenate_planned", "understood", "write_output"]


def concatenate(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: Progress = lambda _phase, _done, _total: None,
) -> Concatenated:
    """Append every dataset of every input, in order, to that of the first one.

    Parameters
    ----------
    inputs
        Files of equal groups and datasets. They are only read.
    out
        The output. It has this name only once it is complete and durable.
    options
        How it is written.
    executor
        Who does the work: a client of Dask, whose workers may be on many
        machines, or any executor. Its processes must see the inputs under the
        same names. By default processes of this machine.
    jobs
        How many processes; as many as there are cores, or as the executor has,
        by default. One means that this process does the work.
    overwrite
        Whether an output that exists is replaced.
    restart
        Whether what an interrupted run left is discarded, and not continued.
    progress
        Called as the work goes on.

    Returns
    -------
    Concatenated
        What was written.

    Raises
    ------
    ConfigurationError
        There is no input, or one of them is the output.
    TableFileError
        A file can't be read or written; the output exists.
    TableMismatchError
        The inputs do not fit together; every place where is named.

    Notes
    -----
    Inputs are compared before anything is written. An interrupted run, killed
    or not, is continued by a call with the same inputs and options, from a
    point at most half a minute before its end. The method follows Lee et al.,
    Parallel Computing 110 (2022), with processes for MPI ranks and one writer.
    """
    return concatenate_planned(
        [os.fspath(path) for path in inputs],
        OutputPlace(Path(out)),
        options or TableOptions(),
        executor=executor,
        jobs=jobs,
        overwrite=overwrite,
        restart=restart,
        progress=progress,
    )


def concatenate_planned(
    paths: Sequence[str],
    place: OutputPlace,
    options: TableOptions,
    *,
    executor: Executor | DaskClient | None,
    jobs: int | None,
    overwrite: bool,
    progress: Progress,
    restart: bool = False,
    keep_keys: bool = False,
    virtual: bool = False,
) -> Concatenated:
    """Do the work of :func:`concatenate`, and of others like it.

    Parameters
    ----------
    paths, place, options, executor, jobs, overwrite, progress, restart
        As there.
    keep_keys
        Whether partition keys are columns like others.
    virtual
        Whether the output refers to the inputs' rows and holds none but keys.
    """
    check_names(paths, place.path)
    done = Concatenated(str(place.path), files=len(paths))
    with (
        understood(place.path),
        place.claimed(overwrite=overwrite),
        executor_for(executor, jobs) as workforce,
    ):
        workers = width(workforce, jobs)
        with done.timed("survey"):
            found = surveyed(paths, options, workforce, progress, keep_keys=keep_keys)
            found = sorted_inputs(found, options)
        with done.timed("keys"):
            plan, keys = planned(found, options, workforce, virtual=virtual)
        try:
            write_output(place, plan, options, keys, workforce, workers, done, restart, progress)
        finally:
            if keys is not None:
                keys.close()
        place.publish(overwrite=overwrite)
    done.finish()
    return done


def check_names(paths: Sequence[str], out: Path) -> None:
    """Refuse an empty list, a file given twice, and an output that is an input or no file.

    Raises
    ------
    ConfigurationError
        There is no input, or one of them is the output.
    TableFileError
        The output can be no file, or its directory does not exist.
    TableMismatchError
        A file is given twice.
    """
    if not paths:
        raise ConfigurationError("inputs", "at least one file", [])
    if out.exists() and any(os.path.exists(path) and out.samefile(path) for path in paths):  # noqa: PTH110
        raise ConfigurationError("out", "a file that is not among the inputs", str(out))
    if not out.parent.is_dir():
        raise TableFileError(str(out), f"there is no directory {out.parent}")
    if out.exists() and not out.is_file():
        raise TableFileError(str(out), "is no file; choose another name")
    raise_problems(same_files(paths))


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turn errors of the system and of workers into ours, which name the file and the fix."""
    try:
        yield
    except HepcacheError:
        raise
    except BrokenProcessPool as error:
        raise TableFileError(
            str(path), "a worker process was killed, perhaps for lack of memory; use fewer jobs"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TableFileError(str(path), f"could not be written: {reason}") from error


def surveyed(
    paths: Sequence[str],
    options: TableOptions,
    executor: Executor,
    progress: Progress,
    *,
    keep_keys: bool = False,
) -> Inputs:
    """Look at all inputs and compare them."""
    count = 0

    def one_more() -> None:
        nonlocal count
        count += 1
        progress("Reading metadata", count, len(paths))

    tables = survey_all(paths, executor, done=one_more)
    equal = options.attributes == "equal"
    return gather(tables, key=options.key, attributes=equal, keep_keys=keep_keys)


def planned(
    inputs: Inputs, options: TableOptions, executor: Executor, *, virtual: bool = False
) -> tuple[Plan, Keys | None]:
    """Return what is to be written, and the keys."""
    if options.key is None:
        return make_plan(inputs, options, virtual=virtual), None
    spill, groups = key_groups(inputs, options.key, options.events)
    room = options.memory_bytes // 8
    keys = find_all_keys(inputs, options.key, spill, groups, executor, memory_bytes=room)
    return make_plan(inputs, options, key_groups=groups, virtual=virtual), keys


def write_output(
    place: OutputPlace,
    plan: Plan,
    options: TableOptions,
    keys: Keys | None,
    executor: Executor,
    workers: int,
    done: Concatenated,
    restart: bool,
    progress: Progress,
) -> None:
    """Write the hidden output, or the rest of it; it is complete and durable then."""
    job = _fingerprint(plan, options)
    if restart or not place.resumable(job):
        place.discard()
    known = place.part.exists()
    protected = place.part.stat().st_size if known else 0
    output = Output(place.part, place.part_journal, plan, protected=protected)
    writer = Writer(output, plan, options, keys, executor, workers, done, progress, resumed=known)
    try:
        writer.fill(nothing if known else output.create, lambda: _checkpoint(output, place, job))
        with done.timed("finish"):
            output.close()
            output.file.commit()
            output.file.close()
    except BaseException:
        output.abandon()
        if not place.job.exists():
            place.discard()
        raise
    done.groups, done.datasets = len(plan.schema.groups) - 1, len(plan.schema.columns)


def _checkpoint(output: Output, place: OutputPlace, job: str) -> None:
    output.flush()
    output.file.commit()
    if not place.job.exists():
        place.remember(job)


def _fingerprint(plan: Plan, options: TableOptions) -> str:
    files = [(one.path, one.size, one.mtime_ns) for one in plan.inputs.tables]
    files.append((str(plan.virtual), *plan.edges[-1].tolist()))
    return xxhash.xxh3_128_hexdigest(repr((__version__, files, options)).encode())
