"""``coffea.processor`` on top of hepcache: change only the import of a script.

.. code-block:: diff

    -from coffea import processor
    +from hepcache import compat as processor

or, for single names,

.. code-block:: diff

    -from coffea.processor import DaskExecutor, Runner
    +from hepcache.compat import DaskExecutor, Runner

:class:`Runner` and :class:`DaskExecutor` are hepcache's. They attach hepcache to the client's
cluster when it is first used; the workers need hepcache installed. After ``client.restart()``
caches and placement are set up again automatically. Every other name is coffea's own.

The calls of coffea 0.7 and of every release since work: ``run(fileset, "Events", processor)``
in any order, ``run_uproot_job(fileset, "Events", processor, iterative_executor, executor_args)``,
also with ``futures_executor`` and ``dask_executor``, and numbers for True and False.

Notes
-----
A script may notice these differences:

- Bad files raise :class:`~hepcache.errors.BadFileError`, which names all of them at once and
  also has coffea's type. ``skipbadfiles`` skips the same files as in coffea;
  ``run.run_record.skipped`` lists the skipped files and chunks.
- A processor that fails raises :class:`~hepcache.errors.ChunkError`, which says where; its own
  exception is the cause.
- Chunks end at segment boundaries if ``chunksize`` allows it; every event is in exactly one.
  With ``align_clusters`` they are coffea's.
- An executor without a client uses the current one. If there is none, it raises an error, while
  coffea starts a cluster.
- A cluster's results are added up in the order in which they end; local executors
  keep coffea's order.
- Options that choose where coffea looks for files or sends tasks (``metadata_cache``,
  ``worker_affinity``) have no effect: the catalogue and the placement do both. Options of a
  Runner that coffea has removed (``mmap``, ``dynamic_chunksize``) have no effect either, and
  cause a warning.
- ``factory.file_handle`` opens the file only when it is read from, because a cached chunk doesn't
  open it.
- ``metrics["bytesread"]`` counts bytes of the origin only; ``metrics["cachebytes"]`` counts bytes
  of the caches.
- ``format="parquet"``: chunks in which integers are missing fail; coffea returns meaningless
  numbers for them. Files without a parquet suffix, and dataframes, use coffea's own reader,
  without the cache.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from coffea import nanoevents

from hepcache import process
from hepcache.clusters import attach
from hepcache.process import Executor
from hepcache.process.executor import current_client
from hepcache.process.run_handle import RunHandle
from hepcache.upstream.coffea import ExecutorBase, WorkItem, coffea_processor

__all__ = [
    "DaskExecutor",
    "Runner",
    "dask_executor",
    "futures_executor",
    "iterative_executor",
    "run_parquet_job",
    "run_uproot_job",
]

# Options of a Runner that later releases of coffea lack. No result depends on them.
_GONE = ("dynamic_chunksize", "mmap", "skyhook_options", "use_skyhook")

# Names that coffea.processor once had, of its schemas and of its analysis tools.
_SCHEMAS = frozenset({"NanoAODSchema", "TreeMakerSchema"})
_TOOLS = frozenset({"PackedSelection", "Weights"})

_attached: set[str] = set()


class DaskExecutor(Executor):
    """hepcache's executor, which attaches hepcache to its client's cluster at first use."""

    def __call__(self, items: Any, function: Any, accumulator: Any) -> tuple[Any, int]:
        """Map ``function`` over ``items`` and return ``(accumulator, 0)``."""
        client = self.client or current_client()
        scheduler = str(client.scheduler_info()["id"])
        if scheduler not in _attached:
            attach(client)
            _attached.add(scheduler)
        return super().__call__(items, function, accumulator)


class Runner(process.Runner):
    """hepcache's Runner, which accepts the calls of any release of coffea since 0.7.

    ``executor`` and ``**options``: as for :class:`hepcache.Runner`; numbers can replace True and
    False.
    """

    def __init__(self, executor: ExecutorBase | None = None, *given: Any, **options: Any) -> None:
        gone = [name for name in _GONE if options.pop(name, None)]
        if gone:
            warnings.warn(f"coffea has no {', '.join(gone)} any more: left out", stacklevel=2)
        super().__init__(executor, *given, **options)

    def __post_init__(self) -> None:
        for name in ("skipbadfiles", "savemetrics", "align_clusters", "use_result_type"):
            if isinstance(value := getattr(self, name), int):
                setattr(self, name, bool(value))
        super().__post_init__()
        both = self.pre_executor is self.executor
        self.executor = _attaching(self.executor)
        self.pre_executor = self.executor if both else _attaching(self.pre_executor)

    def __call__(self, fileset: Any, *given: Any, **options: Any) -> Any:
        """Run a processor over a fileset.

        The tree's name and the processor come in any order, by position or by name; positions
        after them are ``uproot_options`` and ``iteritems_options``.
        """
        return super().__call__(fileset, **_named(given, options))

    def run(self, fileset: Any, *given: Any, **options: Any) -> Any:
        """Run a processor over a fileset or over chunks, with the arguments of the Runner."""
        return super().run(fileset, **_named(given, options))

    def submit(self, fileset: Any, *given: Any, **options: Any) -> RunHandle:
        """Begin a run on a cluster, with the arguments of the Runner, and return at once."""
        return super().submit(fileset, **_named(given, options))

    def preprocess(self, fileset: Any, *given: Any, **options: Any) -> Iterator[WorkItem]:
        """Return the chunks of a fileset; the tree's name may be a positional argument."""
        names = ("treename", "uproot_options")
        return super().preprocess(fileset, **_by_name(names, given, options))


def _named(given: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run by their names, in whichever order coffea had them."""
    names = ["processor_instance", "treename"]
    tree_first = bool(given) and (given[0] is None or isinstance(given[0], str))
    # A text alone is no processor either, and coffea has the words for that.
    if tree_first and (len(given) > 1 or "processor_instance" in options):
        names.reverse()  # as until 2025
    return _by_name((*names, "uproot_options", "iteritems_options"), given, options)


def _by_name(
    names: Sequence[str], given: Sequence[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return arguments by position and by name together.

    Raises ``TypeError``: there are too many, or one came twice.
    """
    if len(given) > len(names):
        raise TypeError(f"expected {len(names)} positional arguments at most, found {len(given)}")
    by_name = dict(zip(names, given, strict=False))
    if twice := by_name.keys() & options.keys():
        raise TypeError(f"given twice: {', '.join(sorted(twice))}")
    return {**by_name, **options}


def _attaching(executor: ExecutorBase | None) -> Any:
    """Return hepcache's executor as one that attaches hepcache, and any other as it is."""
    return DaskExecutor(**vars(executor)) if type(executor) is Executor else executor


def run_uproot_job(
    fileset: Any,
    treename: str | None,
    processor_instance: Any,
    executor: Callable[..., ExecutorBase] | ExecutorBase,
    executor_args: Mapping[str, Any] | None = None,
    pre_executor: Callable[..., ExecutorBase] | ExecutorBase | None = None,
    pre_args: Mapping[str, Any] | None = None,
    chunksize: int = 100_000,
    maxchunks: int | None = None,
    metadata_cache: Any = None,
    dynamic_chunksize: Any = None,
    format: str = "root",  # noqa: A002 - coffea's name
) -> Any:
    """Run a processor over a fileset, as in coffea 0.7.

    Parameters
    ----------
    fileset, treename, processor_instance, chunksize, maxchunks, metadata_cache, format
        As for :class:`Runner`.
    executor, pre_executor
        An executor's class, such as ``iterative_executor``, or an executor.
    executor_args
        Options of the executor, and of the Runner, such as ``schema`` and ``savemetrics``; it
        is not changed. The default schema is BaseSchema, as in coffea 0.7.
    pre_args
        Options of ``pre_executor``.
    dynamic_chunksize
        Ignored.

    Returns
    -------
    output
        What the Runner returns.
    """
    args = dict(executor_args or {})
    runner = Runner(
        _executor(executor, args),
        pre_executor=None
        if pre_executor is None
        else _executor(pre_executor, dict(pre_args or {})),
        chunksize=chunksize,
        maxchunks=maxchunks,
        metadata_cache=metadata_cache,
        dynamic_chunksize=dynamic_chunksize,
        format=format,
        **{"schema": nanoevents.BaseSchema, **args},
    )
    return runner(fileset, treename, processor_instance)


def run_parquet_job(*arguments: Any, **options: Any) -> Any:
    """Run a processor over parquet files; otherwise like :func:`run_uproot_job`."""
    return run_uproot_job(*arguments, **{**options, "format": "parquet"})


def _executor(given: Any, args: dict[str, Any]) -> ExecutorBase:
    """Make an executor with those of the arguments that are its own, and take them out."""
    if isinstance(given, ExecutorBase):
        return given
    own = [name for name in given.__dataclass_fields__ if name in args]
    made: ExecutorBase = given(**{name: args.pop(name) for name in own})
    return made


dask_executor = DaskExecutor
futures_executor = coffea_processor.FuturesExecutor
iterative_executor = coffea_processor.IterativeExecutor


def __getattr__(name: str) -> Any:
    if name in _SCHEMAS:
        return getattr(nanoevents, name)
    if name in _TOOLS:
        from coffea import analysis_tools

        return getattr(analysis_tools, name)
    return getattr(coffea_processor, name)
