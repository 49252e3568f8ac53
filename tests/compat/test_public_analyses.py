"""How public analyses use coffea's Runner, in our words: each gives plain coffea's result."""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import distributed
import pytest
from coffea import processor as coffea
from coffea.nanoevents import NanoAODSchema
from coffea.processor.executor import WorkItem
from tests.compat.conftest import equal, ordered
from tests.compat.samples import write_nano
from tests.compat.test_options import Selection, analysis, two_datasets, unordered

from hepcache import compat
from hepcache.process.worker import store_pending

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
    pytest.mark.filterwarnings("ignore:Skipping bad file:UserWarning"),
    pytest.mark.filterwarnings("ignore:Performed attempt:UserWarning"),
]

LOCAL = ("iterative",)
BOTH = ("iterative", "cluster")
Compare = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nano")
    write_nano(directory)
    return directory


def runner(processor: ModuleType, executor: Any, **options: Any) -> Any:
    return processor.Runner(executor, schema=NanoAODSchema, chunksize=20, **options)


def test_integration_challenge_cms_keeps_pickled_work_items(nano: Path, compare: Compare) -> None:
    """Several kinds of errors are skipped; chunks are stored, and processed in another session."""

    def script(processor: ModuleType, executor: Any) -> Any:
        run = runner(
            processor, executor, skipbadfiles=(OSError, RuntimeError, ValueError), savemetrics=True
        )
        files = two_datasets(nano)
        files["dy"]["files"][str(nano / "gone.root")] = "Events"
        stored = pickle.dumps(list(run.preprocess(files)))
        output, metrics = run(pickle.loads(stored), Selection())
        return unordered(output), metrics["entries"]

    compare(script, BOTH)


def test_integration_challenge_atlas_edits_metadata_and_stores_json(
    nano: Path, compare: Compare, tmp_path: Path
) -> None:
    """Work items are dictionaries in a file, their UUIDs base64; some get other metadata."""

    def script(processor: ModuleType, executor: Any) -> Any:
        run = runner(processor, executor)
        items = [
            replace(item, usermeta={**(item.usermeta or {}), "weight": number})
            for number, item in enumerate(run.preprocess(two_datasets(nano)))
        ]
        items[0].usermeta["weight"] = 0.5
        entries = [asdict(item) for item in items]
        for entry in entries:
            entry["fileuuid"] = base64.b64encode(entry["fileuuid"]).decode()
        path = tmp_path / "items.json"
        path.write_text(json.dumps(entries))
        read = json.loads(path.read_text())
        for entry in read:
            entry["fileuuid"] = base64.b64decode(entry["fileuuid"])
        first = unordered(run(items, Selection()))
        return first, unordered(run([WorkItem(**entry) for entry in read], Selection()))

    compare(script, BOTH)


class TopSchema(NanoAODSchema):
    """A schema of the analysis's own."""

    mixins: ClassVar = {**NanoAODSchema.mixins, "GenJet": "PtEtaPhiMCollection"}


def test_agc_measures_its_chunks_and_their_processing_apart(nano: Path, compare: Compare) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(
            executor=executor, schema=TopSchema, savemetrics=True, metadata_cache={}, chunksize=20
        )
        chunks = run.preprocess(two_datasets(nano), treename="Events")
        output, metrics = run(chunks, processor_instance=Selection())
        return unordered(output), metrics["entries"], metrics["chunks"]

    compare(script, BOTH)


def test_wrcoffea_gives_a_generator_and_finds_the_file_in_the_error(
    nano: Path, compare: Compare
) -> None:
    gone = str(nano / "gone.root")

    def script(processor: ModuleType, executor: Any) -> Any:
        executor.retries = 0
        run = runner(processor, executor)
        output = run(run.preprocess(two_datasets(nano)), processor_instance=analysis)
        files = two_datasets(nano)
        files["dy"]["files"][gone] = "Events"
        try:
            run(run.preprocess(files), processor_instance=analysis)
        except Exception as error:
            texts, found = [], error
            while found is not None:
                texts.append(str(found))
                found = found.__cause__
            bad = {name for text in texts for name in re.findall(r"[^\s'\":,]+\.root", text)}
            return ordered(output), bad
        return None

    outcomes = compare(script, LOCAL)
    assert outcomes["iterative"][1].value[1] == {gone}


def test_coffea_workflow_unwraps_results(nano: Path, compare: Compare) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        executor.retries = 0
        run = runner(processor, executor, skipbadfiles=True, use_result_type=True)
        good = run(two_datasets(nano), processor_instance=Selection())
        bad = run({"dy": {"files": {str(nano / "gone.root"): "Events"}}}, Selection())
        return (
            good.is_ok(),
            unordered(good.unwrap()),
            bad.is_err(),
            type(bad.exception).__mro__[-4:],
        )

    compare(script, LOCAL)


def test_hh4b_takes_options_from_one_dictionary(nano: Path, hepcache_client: Any) -> None:
    fileset = {
        name: {"files": list(entry["files"]), "metadata": {"weight": 2.0}}
        for name, entry in two_datasets(nano).items()
    }
    # coffea's own cache of metadata holds what other filesets gave to these files.
    theirs = runner(
        coffea, coffea.IterativeExecutor(status=False), savemetrics=True, metadata_cache={}
    )
    expected, _ = theirs(fileset, Selection(), treename="Events")
    args = {"schema": NanoAODSchema, "savemetrics": 1, "skipbadfiles": 1, "align_clusters": 0}
    executor = compat.dask_executor(client=hepcache_client, status=False)
    run = compat.Runner(executor=executor, chunksize=20, maxchunks=None, **args)
    output, metrics = run(fileset, "Events", processor_instance=Selection())
    assert equal(unordered(output), unordered(expected))
    assert metrics["entries"] == 180


def test_topeft_calls_by_position_with_an_executor_by_name(nano: Path) -> None:
    fileset = {name: list(entry["files"]) for name, entry in two_datasets(nano).items()}
    theirs = runner(coffea, coffea.IterativeExecutor(status=False), maxchunks=2)
    expected = theirs(fileset, Selection(), treename="Events")
    args = {"workers": 1, "status": False, "schema": NanoAODSchema, "skipbadfiles": False}
    output = compat.run_uproot_job(
        fileset, "Events", Selection(), compat.iterative_executor, args, None, None, 20, 2
    )
    assert equal(unordered(output), unordered(expected))


def measured(process: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Add to a processor's output what each chunk was and how long it took."""

    @functools.wraps(process)
    def processed(self: Any, events: Any) -> Any:
        began = time.perf_counter()
        output = process(self, events)
        chunk = {name: events.metadata[name] for name in ("dataset", "entrystart", "entrystop")}
        positive = time.perf_counter() > began
        output["__chunks__"] = [{**chunk, "events": len(events), "timed": positive}]
        return output

    return processed


class Measured(Selection):
    @measured
    def process(self, events: Any) -> Any:
        return analysis(events)


def test_roastcoffea_decorates_process(nano: Path, compare: Compare) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        output = runner(processor, executor)(two_datasets(nano), Measured())
        chunks = output.pop("__chunks__")
        return unordered(output), sorted(map(str, chunks))

    compare(script, LOCAL)


class Named(distributed.WorkerPlugin):
    """What an executor's factory sets up on all workers, as PipInstall does."""

    name = "named"
    idempotent = True

    def setup(self, worker: distributed.Worker) -> None:
        worker.named = True


@pytest.fixture
def facility() -> Iterator[distributed.Client]:
    """Client of somebody's scheduler, by its address."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster.scheduler_address, set_as_default=False) as client,
    ):
        yield client


def test_pocketcoffea_restarts_the_facilitys_workers(
    nano: Path, facility: distributed.Client
) -> None:
    theirs = runner(coffea, coffea.IterativeExecutor(status=False))
    expected = unordered(theirs(two_datasets(nano), Selection()))
    run = runner(compat, coffea.DaskExecutor(client=facility, status=False))
    assert equal(unordered(run(two_datasets(nano), Selection())), expected)
    before = {chunk.worker for chunk in run.run_record.chunks}
    facility.register_plugin(Named())
    facility.run(store_pending)  # it may be slow
    facility.restart()
    assert equal(unordered(run(two_datasets(nano), Selection())), expected)
    record = run.run_record
    assert all(chunk.causes.keys() <= {"hit"} and chunk.owner for chunk in record.chunks)
    assert sum(chunk.origin_bytes for chunk in record.chunks) == 0
    assert before
    assert all(facility.run(lambda dask_worker: dask_worker.named).values())


def restarted(client: distributed.Client, before: set[int]) -> set[int]:
    """Return the process ids of two workers that are none of those before, once they are there."""
    for _ in range(1200):
        with suppress(OSError, TimeoutError):
            found = set(client.run(os.getpid, on_error="ignore").values())
            if len(found) == 2 and not found & before:
                return found
        time.sleep(0.1)
    raise AssertionError("the workers were not restarted")


@pytest.mark.slow
def test_pocketcoffea_installs_packages_on_the_facilitys_workers(
    nano: Path, facility: distributed.Client
) -> None:
    """With Dask's own plugin, which runs pip there and starts the workers anew."""
    theirs = runner(coffea, coffea.IterativeExecutor(status=False))
    expected = unordered(theirs(two_datasets(nano), Selection()))
    run = runner(compat, coffea.DaskExecutor(client=facility, status=False))
    assert equal(unordered(run(two_datasets(nano), Selection())), expected)
    facility.run(store_pending)  # it may be slow
    before = set(facility.run(os.getpid).values())
    # It is there, so that nothing is fetched.
    there = distributed.PipInstall(["numpy"], pip_options=["--no-index"], restart_workers=True)
    facility.register_plugin(there)
    restarted(facility, before)
    assert equal(unordered(run(two_datasets(nano), Selection())), expected)
    record = run.run_record
    assert all(chunk.causes.keys() <= {"hit"} and chunk.owner for chunk in record.chunks)
    assert sum(chunk.origin_bytes for chunk in record.chunks) == 0
