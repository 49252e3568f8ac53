"""Runs are called as any coffea since 0.7 is called, and give what today's coffea gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema, NanoAODSchema
from tests.compat.conftest import equal
from tests.compat.samples import write_nano
from tests.compat.test_options import Selection, two_datasets, unordered

from hepcache import compat

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
]

OPTIONS: dict[str, Any] = {"schema": NanoAODSchema, "chunksize": 20}
PROCESSOR = Selection()


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nano")
    write_nano(directory)
    return directory


@pytest.fixture(scope="module")
def named(nano: Path) -> dict[str, list[str]]:
    """Return a fileset as coffea 0.7 had it, whose tree is named beside it."""
    return {name: list(entry["files"]) for name, entry in two_datasets(nano).items()}


@pytest.fixture(scope="module")
def expected(named: dict[str, list[str]]) -> Any:
    run = coffea.Runner(coffea.IterativeExecutor(status=False), **OPTIONS)
    return unordered(run(named, treename="Events", processor_instance=PROCESSOR))


CALLS: dict[str, Callable[[compat.Runner, Any], Any]] = {
    "tree, then the processor by name": lambda run, files: run(
        files, "Events", processor_instance=PROCESSOR
    ),
    "0.7, by position": lambda run, files: run(files, "Events", PROCESSOR),
    "0.7, all by name": lambda run, files: run(
        fileset=files, treename="Events", processor_instance=PROCESSOR
    ),
    "2025, by position": lambda run, files: run(files, PROCESSOR, "Events", {}, {}),
    "2026": lambda run, files: run(files, PROCESSOR, treename="Events"),
    "run, 0.7": lambda run, files: run.run(files, PROCESSOR, "Events")["out"],
    "chunks, 0.7": lambda run, files: run(
        run.preprocess(files, "Events"), treename=None, processor_instance=PROCESSOR
    ),
    "chunks and None": lambda run, files: run(
        list(run.preprocess(files, treename="Events")), None, PROCESSOR
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_order_of_arguments(name: str, named: Any, expected: Any) -> None:
    run = compat.Runner(compat.IterativeExecutor(status=False), metadata_cache={}, **OPTIONS)
    assert equal(unordered(CALLS[name](run, named)), expected)


def test_an_argument_given_twice_is_refused(named: Any) -> None:
    run = compat.Runner(compat.IterativeExecutor(status=False), **OPTIONS)
    with pytest.raises(TypeError, match="given twice: treename"):
        run(named, "Events", treename="Events", processor_instance=PROCESSOR)
    with pytest.raises(TypeError, match="at most"):
        run(named, "Events", PROCESSOR, {}, {}, 1)


@pytest.mark.parametrize("executor", ["iterative_executor", "futures_executor", "dask_executor"])
def test_run_uproot_job(executor: str, named: Any, expected: Any, hepcache_client: Any) -> None:
    args = {"status": False, "schema": NanoAODSchema, "savemetrics": 1, "skipbadfiles": 1}
    if executor == "dask_executor":
        args["client"] = hepcache_client
    given = dict(args)
    output, metrics = compat.run_uproot_job(
        named,
        "Events",
        PROCESSOR,
        executor=getattr(compat, executor),
        executor_args=given,
        chunksize=20,
        metadata_cache={},
    )
    assert equal(unordered(output), expected)
    assert (metrics["entries"], given) == (180, args)


def test_a_job_with_positions_only_and_an_executor_that_is_made() -> None:
    ran = compat.run_uproot_job
    with pytest.raises(ValueError, match="processor_instance"):
        ran({"d": ["a.root"]}, "Events", 1, compat.iterative_executor, {"status": False})
    executor = compat.iterative_executor(status=False)
    with pytest.raises(FileNotFoundError):
        ran({"d": ["/not/there.root"]}, "Events", PROCESSOR, executor)


def test_without_a_schema_a_job_has_coffea_07s(nano: Path) -> None:
    def branches(events: Any) -> dict[str, int]:
        return {"branches": len(events.fields)}

    files = {"dy": [str(nano / "dy_0.root")]}
    theirs = coffea.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema, chunksize=90)
    ours = compat.run_uproot_job(
        files, "Events", branches, compat.iterative_executor, {"status": False}, chunksize=90
    )
    assert ours == theirs(files, branches, treename="Events")


@pytest.mark.parametrize("skip", [1, True, (OSError,)])
def test_numbers_stand_for_true(skip: Any, nano: Path) -> None:
    files = {"dy": [str(nano / "dy_0.root"), str(nano / "gone.root")]}
    options = {"skipbadfiles": skip, "use_result_type": 1, **OPTIONS}
    run = compat.Runner(compat.IterativeExecutor(status=False), **options)
    with pytest.raises(FileNotFoundError):
        run(files, "Events", PROCESSOR).unwrap()
    run = compat.Runner(compat.IterativeExecutor(status=False), skipbadfiles=skip, **OPTIONS)
    assert run(files, "Events", PROCESSOR)["total"] == 60
    assert [part.path for part in run.run_record.skipped] == files["dy"][1:]


def test_options_that_coffea_has_no_more_are_left_out_with_a_warning(
    named: Any, expected: Any
) -> None:
    with pytest.warns(UserWarning, match="coffea has no mmap any more"):
        run = compat.Runner(
            compat.IterativeExecutor(status=False), mmap=True, dynamic_chunksize=None, **OPTIONS
        )
    assert equal(unordered(run(named, "Events", PROCESSOR)), expected)


def test_names_that_have_moved_since() -> None:
    from coffea import analysis_tools

    assert compat.NanoAODSchema is NanoAODSchema
    assert compat.PackedSelection is analysis_tools.PackedSelection
    assert compat.Weights is analysis_tools.Weights
    with pytest.raises(AttributeError):
        _ = compat.nothing_of_the_kind
