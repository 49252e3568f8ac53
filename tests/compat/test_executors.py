"""Executors of both in runners of both, workers with threads, and a script's import line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import distributed
import pytest
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema, NanoAODSchema
from tests.compat.conftest import equal
from tests.compat.contents import columns
from tests.compat.samples import write_all, write_nano
from tests.compat.test_options import Selection, two_datasets, unordered

import hepcache
from hepcache import compat
from hepcache.scheduling.client_requests import NAME

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")

RUNNERS = {"coffea": coffea.Runner, "hepcache": hepcache.Runner}
OPTIONS = {"schema": NanoAODSchema, "metadata_cache": {}, "chunksize": 20}


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nano")
    write_nano(directory)
    return directory


@pytest.fixture(scope="module")
def expected(nano: Path) -> Any:
    run = coffea.Runner(coffea.IterativeExecutor(status=False), **OPTIONS)
    return unordered(run(two_datasets(nano), Selection()))


EXECUTORS: dict[str, Callable[[Any], Any]] = {
    "coffea's iterative": lambda client: coffea.IterativeExecutor(status=False),
    "coffea's futures, threads": lambda client: coffea.FuturesExecutor(
        pool=ThreadPoolExecutor, workers=4, status=False
    ),
    "coffea's for dask": lambda client: coffea.DaskExecutor(client=client, status=False),
    "hepcache's": lambda client: hepcache.Executor(client=client, status=False),
    "hepcache's, uncompressed": lambda client: hepcache.Executor(
        client=client, status=False, compression=None, treereduction=2
    ),
}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_any_executor_in_any_runner(
    runner: str, executor: str, nano: Path, expected: Any, hepcache_client: Any
) -> None:
    for _ in range(2):
        run = RUNNERS[runner](EXECUTORS[executor](hepcache_client), **OPTIONS)
        assert equal(unordered(run(two_datasets(nano), Selection())), expected)


@pytest.mark.slow
@pytest.mark.parametrize("merging", [False, True])
def test_coffeas_processes(nano: Path, expected: Any, merging: bool) -> None:
    executor = coffea.FuturesExecutor(
        pool=ProcessPoolExecutor, workers=2, merging=merging, status=False
    )
    for _ in range(2):
        run = hepcache.Runner(executor, **OPTIONS)
        assert equal(unordered(run(two_datasets(nano), Selection())), expected)


def test_another_executor_for_preprocessing(
    nano: Path, expected: Any, hepcache_client: Any
) -> None:
    run = hepcache.Runner(
        hepcache.Executor(client=hepcache_client, status=False),
        pre_executor=coffea.IterativeExecutor(status=False),
        **OPTIONS,
    )
    assert equal(unordered(run(two_datasets(nano), Selection())), expected)


@pytest.fixture(scope="module")
def threads() -> Iterator[distributed.Client]:
    """Client of a cluster as a user has it, of one worker with four threads."""
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=4, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_a_script_for_dask_needs_only_another_import(
    nano: Path, expected: Any, threads: distributed.Client
) -> None:
    for processor in (coffea, compat, compat):
        executor = processor.DaskExecutor(client=threads, status=False)
        run = processor.Runner(executor=executor, savemetrics=True, **OPTIONS)
        output, metrics = run(two_datasets(nano), Selection())
        assert equal(unordered(output), expected)
        assert (metrics["entries"], metrics["chunks"]) == (180, 9)
        assert (NAME in threads.cluster.scheduler.plugins) == (processor is compat)


def test_threads_of_a_worker_read_every_column(
    tmp_path: Path, threads: distributed.Client
) -> None:
    fileset = {
        name: {"files": {str(path): tree}}
        for name, (path, tree) in write_all(tmp_path).items()
        if name.partition("_")[0] in ("flat", "jagged", "records", "strings", "deep")
    }
    options = {"schema": BaseSchema, "chunksize": 7}
    local = coffea.Runner(coffea.IterativeExecutor(status=False), **options)
    expected = local(fileset, columns)
    run = compat.Runner(compat.DaskExecutor(client=threads, status=False), **options)
    for _ in range(2):
        assert run(fileset, columns) == expected
    record = run.run_record
    assert record is not None
    assert {cause for chunk in record.chunks for cause in chunk.causes} == {"hit"}


def test_all_other_names_are_coffeas() -> None:
    for name in coffea.__all__:
        assert getattr(compat, name) is not None
        same = getattr(compat, name) is getattr(coffea, name)
        assert same == (name not in ("DaskExecutor", "Runner"))
    with pytest.raises(AttributeError):
        compat.nonsense  # noqa: B018
