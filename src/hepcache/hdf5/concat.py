"""Concatenate files of tables: checked first, written in parallel, visible when complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import xxhash

from hepcache import __version__
from hepcache.errors import ConfigurationError, TableFileError
from hepcache.hdf5.executors import DaskClient
from hepcache.hdf5.inputs import (
    Inputs,
    match_files,
    raise_problems,
    read_record,
    same_files,
    sort_inputs,
    survey_all,
)
from hepcache.hdf5.key_tasks import (
    SpooledKeys,
    chosen_groups,
    find_all_keys,
    groups_without_key,
    key_groups,
)
from hepcache.hdf5.keys import count_rows, runs_of_keys
from hepcache.hdf5.model import (
    Concatenated,
    Int64Array,
    Progress,
    Storage,
    TableOptions,
    no_progress,
)
from hepcache.hdf5.output import OutputFile, WriteContext, fill_output, writing
from hepcache.hdf5.plan import Plan, make_plan
from hepcache.hdf5.rows import RowReader, read_integers


def concatenate(
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: TableOptions | None = None,
    *,
    executor: Executor | DaskClient | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Concatenated:
    """Concatenate every dataset of all inputs, in their order.

    Parameters
    ----------
    inputs
        Files with equal groups and datasets. They are only read.
    out
        The output. It gets this name only when it is complete and durable.
    options
        How it is written.
    executor
        A client of Dask, whose workers may be on many machines, or any
        executor, to do the work. Its processes must see the inputs under the
        same names. By default processes of this machine.
    jobs
        Number of processes; by default the number of cores, or of the
        executor's processes. With 1, this process does the work.
    overwrite
        Whether an existing output is replaced.
    restart
        Whether the files of an interrupted run are discarded instead of continued.
    progress
        Called during the work.

    Raises
    ------
    ConfigurationError
        There is no input, or one of them is the output.
    TableFileError
        A file can't be read or written; the output exists.
    TableMismatchError
        The inputs do not fit together; the error names every place.

    Notes
    -----
    Inputs are compared before anything is written. A call with the same inputs
    and options continues an interrupted run, killed or not, from a
    point at most half a minute before its end. The method follows Lee et al.,
    Parallel Computing 110 (2022), with processes for MPI ranks and one writer.
    """
    paths = [os.fspath(path) for path in inputs]
    check_names(paths, out)
    options = options or TableOptions()
    with writing(
        out, len(paths), options, executor, jobs, progress, overwrite=overwrite
    ) as context:
        join_files(paths, context, restart=restart)
    return context.done


def join_files(
    paths: Sequence[str],
    context: WriteContext,
    *,
    restart: bool = False,
    keep_keys: bool = False,
    virtual: bool = False,
) -> None:
    """Do the work of :func:`concatenate`, and of others like it.

    With ``keep_keys`` partition keys are columns like others; with ``virtual`` the output
    refers to the inputs' rows and holds none but keys.
    """
    options = context.options

    def surveyed(done: int) -> None:
        context.progress("Reading metadata", done, len(paths))

    with context.done.timed("survey"):
        tables = survey_all(paths, context.executor, progress=surveyed)
        equal = options.attributes == "equal"
        inputs = match_files(tables, key=options.key_name, attributes=equal, keep_keys=keep_keys)
        inputs = sort_inputs(inputs, options)
    with context.done.timed("keys"):
        plan, keys = plan_output(inputs, context, virtual=virtual)
    if keep_keys:
        plan = replace(plan, record={**read_record(paths[0]), **plan.record})
    counts = None
    if keep_keys and inputs.counts:
        plan = replace(plan, counted={count.group: count.name for count in inputs.counts})
        counts = partial(_counts_of, inputs)
    try:
        write_output(plan, keys, context, restart=restart, counts=counts)
    finally:
        if keys is not None:
            keys.close()


def _counts_of(inputs: Inputs, group: int) -> Int64Array:
    """Return the rows of every event of a group, from the keys that the first file has."""
    (path,) = (count.path for count in inputs.counts if count.group == group)
    stored = inputs.stored_column(0, inputs.schema.numbers()[path.removesuffix(b"_cnt")])
    with closing(RowReader(inputs.source(0))) as reader:
        (keys,) = read_integers(reader, [stored])
    return count_rows([(runs_of_keys(keys.astype(np.int64)), 0)])


def check_names(paths: Sequence[str], out: str | os.PathLike[str]) -> None:
    """Refuse an empty list, a file given twice, and an output that is an input or no file."""
    path = Path(out)
    name = str(path)
    if not paths:
        raise ConfigurationError("inputs", "at least one file", [])
    if path.exists() and any(os.path.exists(source) and path.samefile(source) for source in paths):  # noqa: PTH110
        raise ConfigurationError("out", "a file that is not among the inputs", name)
    if not path.parent.is_dir():
        raise TableFileError(name, f"there is no directory {path.parent}")
    if path.exists() and not path.is_file():
        raise TableFileError(name, "is no file; choose another name")
    raise_problems(same_files(paths))


def plan_output(
    inputs: Inputs,
    context: WriteContext,
    *,
    virtual: bool = False,
    storages: Mapping[bytes, Storage] | None = None,
    existing_keys: Mapping[int, Int64Array] | None = None,
) -> tuple[Plan, SpooledKeys | None]:
    """Return what is written, and the keys, which the caller closes.

    Where the first input is an earlier output, ``storages`` and ``existing_keys`` are the
    storage of its columns and its keys.
    """
    options = context.options
    key = options.event_key
    if key is None:
        return make_plan(inputs, options, existing=storages, virtual=virtual), None
    event_group, able = key_groups(inputs, key)
    if existing_keys is None:
        groups = chosen_groups(inputs, able, event_group, options.key_groups)
    else:  # as the earlier output has them
        groups = [column.group for column in inputs.keys]
    context.done.without_key = groups_without_key(inputs, able)
    keys = find_all_keys(
        inputs,
        key,
        event_group,
        groups,
        context.executor,
        memory_bytes=options.key_memory_bytes,
        existing=existing_keys,
    )
    plan = make_plan(inputs, options, key_groups=groups, existing=storages, virtual=virtual)
    return plan, keys


def write_output(
    plan: Plan,
    keys: SpooledKeys | None,
    context: WriteContext,
    *,
    restart: bool,
    counts: Callable[[int], Int64Array] | None = None,
) -> None:
    """Write the hidden output, or the rest of it, and give it its name."""
    pending = context.pending
    job = _fingerprint(plan, context.options)
    if restart or not pending.resumable(job):
        pending.discard()
    resumed = pending.part.exists()
    protected = pending.part.stat().st_size if resumed else 0
    output = OutputFile(pending.part, pending.part_journal, plan, protected=protected)

    def checkpoint() -> None:
        output.flush()
        output.file.commit()
        if not pending.job.exists():
            pending.remember(job)

    prepare = None if resumed else output.create
    try:
        fill_output(
            output,
            keys,
            context,
            prepare=prepare,
            checkpoint=checkpoint,
            resumed=resumed,
            counts=counts,
        )
    except BaseException:
        output.abandon()
        if not pending.job.exists():
            pending.discard()
        raise
    pending.publish(overwrite=context.overwrite)


def _fingerprint(plan: Plan, options: TableOptions) -> str:
    """Return what is equal for runs that write the same."""
    tables = plan.inputs.tables
    files: list[object] = [(file.path, file.size, file.mtime_ns, *file.sources) for file in tables]
    files.append((str(plan.virtual), *plan.edges[-1].tolist()))
    return xxhash.xxh3_128_hexdigest(repr((__version__, files, options)).encode())
