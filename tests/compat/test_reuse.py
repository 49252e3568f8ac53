"""What was computed is not computed again, and never taken for what other code would compute."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from distributed import Client

from hepcache import compat
from hepcache.errors import ChunkError, ConfigurationError
from hepcache.process.worker_state import forget, worker_state
from hepcache.report import RunRecord
from hepcache.settings import settings

pytestmark = pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning")

ENTRIES = 200


def write(path: Path, factor: int) -> str:
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": np.arange(ENTRIES) * factor})
    return str(path)


class Counting(compat.ProcessorABC):
    """Adds up a column, and notes in a directory of counters that it was called."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def process(self, events: Any) -> dict[str, Any]:
        return {
            "sum": self.factor * int(ak.sum(events.x)),
            "chunks": {(events.metadata["dataset"], events.metadata["entrystart"])},
            "kind": {events.metadata.get("kind", "")},
        }

    def postprocess(self, accumulator: Any) -> Any:
        return {**accumulator, "finished": 1}


Run = Callable[..., tuple[Any, RunRecord]]


@pytest.fixture(params=["iterative", "cluster", "cluster by tasks"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a processor with results reused, and gives the record too."""
    if request.param != "iterative":
        if request.param == "cluster by tasks":  # as runs of many chunks load what is stored
            monkeypatch.setattr("hepcache.process.dispatch._ANSWERED", 0)
        client = request.getfixturevalue("hepcache_client")
        executor: Any = compat.DaskExecutor(client=client, status=False, retries=0)
        client.run(forget)
    else:
        executor = compat.IterativeExecutor(status=False, retries=0)
        forget()

    def runner(fileset: Any, processor: Any, **options: Any) -> tuple[Any, RunRecord]:
        made = compat.Runner(
            executor, **{"schema": BaseSchema, "chunksize": 10, "results": "reuse", **options}
        )
        output = made(fileset, processor)
        assert made.run_record is not None
        return output, made.run_record

    return runner


@pytest.fixture
def fileset(tmp_path: Path) -> dict[str, Any]:
    return {
        name: {"files": {write(tmp_path / f"{name}.root", n + 1): "Events"}}
        for n, name in enumerate(("dy", "tt"))
    }


def outcomes(record: RunRecord) -> tuple[int, int]:
    """Return how many chunks were computed, and how many were reused."""
    kinds = [chunk.outcome for chunk in record.chunks]
    return kinds.count("done"), kinds.count("reused")


def test_the_same_run_again_computes_nothing(run: Run, fileset: dict[str, Any]) -> None:
    expected, first = run(fileset, Counting())
    assert outcomes(first) == (40, 0)
    assert not first.not_stored
    again, second = run(fileset, Counting())
    assert again == expected
    assert outcomes(second) == (0, 40)
    assert second.complete
    assert sum(chunk.origin_bytes + chunk.cache_bytes for chunk in second.chunks) == 0
    assert run(fileset, Counting(), results="compute")[0] == expected


def tasks_moved(dask_scheduler: Any = None) -> int:
    return int(dask_scheduler.transition_counter)


def test_a_short_run_of_which_all_is_stored_sends_no_task(
    hepcache_client: Client, fileset: dict[str, Any]
) -> None:
    executor = compat.DaskExecutor(client=hepcache_client, status=False, retries=0)
    runner = compat.Runner(executor, schema=BaseSchema, chunksize=10, results="reuse")
    hepcache_client.run(clear_results)
    expected = runner(fileset, Counting(4))
    wait_until_added_up(hepcache_client)
    before = hepcache_client.run_on_scheduler(tasks_moved)
    assert runner(fileset, Counting(4)) == expected
    assert hepcache_client.run_on_scheduler(tasks_moved) == before
    assert runner.run_record is not None
    assert outcomes(runner.run_record) == (0, 40)
    # Nothing is left of it in what is asked next.
    assert runner(fileset, Counting(5)) != expected


def clear_results() -> None:
    worker_state().results.clear()


def stored_files() -> int:
    return worker_state().results.usage().results


def wait_until_added_up(client: Client | None) -> None:
    """Wait until hosts, or without a client this process, have added their results up."""

    def most() -> int:
        return stored_files() if client is None else max(client.run(stored_files).values())

    until = time.monotonic() + 20
    while (files := most()) > 2:  # one for each dataset
        assert time.monotonic() < until, f"{files} files"
        time.sleep(0.02)


def test_results_are_added_up_after_the_run(
    hepcache_client: Client, fileset: dict[str, Any]
) -> None:
    def run() -> tuple[Any, RunRecord]:
        executor = compat.DaskExecutor(client=hepcache_client, status=False, retries=0)
        runner = compat.Runner(executor, schema=BaseSchema, chunksize=10, results="reuse")
        output = runner(fileset, Counting(3))
        assert runner.run_record is not None
        return output, runner.run_record

    hepcache_client.run(forget)
    hepcache_client.run(clear_results)
    expected, first = run()
    # At once, while hosts are at it.
    for _ in range(5):
        again, record = run()
        assert again == expected
        assert outcomes(record) == (0, 40)
    hosts = {chunk.host for chunk in first.chunks}
    wait_until_added_up(hepcache_client)
    assert sum(hepcache_client.run(stored_files).values()) <= 2 * len(hosts)
    again, record = run()
    assert again == expected
    assert outcomes(record) == (0, 40)
    assert sorted(chunk.start for chunk in record.chunks) == sorted([*range(0, 200, 10)] * 2)


def test_local_results_are_added_up_after_the_run(fileset: dict[str, Any]) -> None:
    executor = compat.IterativeExecutor(status=False)
    runner = compat.Runner(executor, schema=BaseSchema, chunksize=10, results="reuse")
    expected = runner(fileset, Counting())
    until = time.monotonic() + 20
    while stored_files() > 2:  # one for each dataset
        assert time.monotonic() < until
        time.sleep(0.02)
    assert runner(fileset, Counting()) == expected
    assert runner.run_record is not None
    assert outcomes(runner.run_record) == (0, 40)


def test_another_cut_computes_everything(run: Run, fileset: dict[str, Any]) -> None:
    expected, _ = run(fileset, Counting())
    doubled, record = run(fileset, Counting(2))
    assert outcomes(record) == (40, 0)
    assert doubled["sum"] == 2 * expected["sum"]


def test_a_fileset_that_grew_computes_what_is_new(
    run: Run, fileset: dict[str, Any], tmp_path: Path
) -> None:
    first, _ = run(fileset, Counting())
    grown = {**fileset, "zz": {"files": {write(tmp_path / "zz.root", 3): "Events"}}}
    output, record = run(grown, Counting())
    assert outcomes(record) == (20, 40)
    assert output == run(grown, Counting(), results="compute")[0]
    assert output["sum"] == 2 * first["sum"]
    # What is taken away is not in the result either.
    less, record = run({"tt": fileset["tt"]}, Counting())
    assert outcomes(record) == (0, 20)
    assert {dataset for dataset, _ in less["chunks"]} == {"tt"}


def test_a_replaced_file_is_computed(run: Run, fileset: dict[str, Any], tmp_path: Path) -> None:
    run(fileset, Counting())
    write(tmp_path / "dy.root", 7)
    output, record = run(fileset, Counting())
    assert outcomes(record) == (20, 20)
    assert output == run(fileset, Counting(), results="compute")[0]


def test_what_a_processor_sees_besides_events_counts(run: Run, fileset: dict[str, Any]) -> None:
    run(fileset, Counting())
    known = {name: {**entry, "metadata": {"kind": name}} for name, entry in fileset.items()}
    output, record = run(known, Counting())
    assert outcomes(record) == (40, 0)
    assert output["kind"] == {"dy", "tt"}
    renamed = {"other": fileset["dy"]}
    output, record = run(renamed, Counting())
    assert outcomes(record) == (20, 0)
    assert {dataset for dataset, _ in output["chunks"]} == {"other"}
    _, record = run(fileset, Counting(), chunksize=50)
    assert outcomes(record) == (8, 0)


def test_a_file_in_two_datasets_counts_twice(run: Run, fileset: dict[str, Any]) -> None:
    both = {"a": fileset["dy"], "b": fileset["dy"]}
    expected, _ = run(both, Counting())
    again, record = run(both, Counting())
    assert again == expected
    assert outcomes(record) == (0, 40)


def test_a_run_that_failed_goes_on_where_it_was(
    run: Run, fileset: dict[str, Any], tmp_path: Path
) -> None:
    marker = tmp_path / "broken"
    marker.touch()

    def flaky(events: Any) -> dict[str, Any]:
        if events.metadata["entrystart"] == 150 and os.path.exists(marker):  # noqa: PTH110
            raise ValueError("not yet")
        return {"sum": int(ak.sum(events.x))}

    with pytest.raises(ChunkError):
        run(fileset, flaky)
    marker.unlink()
    output, record = run(fileset, flaky)
    done, reused = outcomes(record)
    assert done + reused == 40
    assert reused > 0
    assert output == run(fileset, flaky, results="compute")[0]


def test_files_that_a_processor_reads_belong_to_its_results(
    run: Run, fileset: dict[str, Any], tmp_path: Path
) -> None:
    weights = tmp_path / "weights.txt"
    weights.write_text("3")
    os.utime(weights, (1, 1))

    def weighted(events: Any) -> dict[str, Any]:
        return {"sum": int(weights.read_text()) * int(ak.sum(events.x))}

    settle(weights)
    first, _ = run(fileset, weighted)
    again, record = run(fileset, weighted)
    assert again == first
    assert outcomes(record) == (0, 40)
    weights.write_text("5")
    settle(weights)
    changed, record = run(fileset, weighted)
    assert changed["sum"] * 3 == first["sum"] * 5
    assert outcomes(record) == (40, 0)


def settle(path: Path) -> None:
    """Wait until a file is older than the clock's grain."""
    import time

    while time.time_ns() <= path.stat().st_ctime_ns + 20_000_000:
        time.sleep(0.01)


def test_a_processor_that_writes_files_is_computed(
    run: Run, fileset: dict[str, Any], tmp_path: Path
) -> None:
    place = tmp_path / "skims"
    place.mkdir()

    def skimming(events: Any) -> dict[str, Any]:
        meta = events.metadata
        (place / f"{meta['dataset']}-{meta['entrystart']}").write_text("skim")
        return {"sum": int(ak.sum(events.x))}

    _, first = run(fileset, skimming)
    (reason,) = {reason.partition(",")[0] for reason in first.not_stored}
    assert reason == "the processor writes files"
    assert sum(first.not_stored.values()) == 40
    shutil.rmtree(place)
    place.mkdir()
    _, second = run(fileset, skimming)
    assert outcomes(second) == (40, 0)
    assert len(list(place.iterdir())) == 40


def test_what_can_not_be_stored_is_computed_and_said(run: Run, fileset: dict[str, Any]) -> None:
    class Unpicklable(dict):  # type: ignore[type-arg]
        def __reduce__(self) -> Any:
            raise TypeError("not this one")

    handle = open(os.devnull)  # noqa: SIM115, PTH123
    options = {"handle": handle}

    def held(events: Any) -> dict[str, Any]:
        return {"sum": int(ak.sum(events.x)), "n": len(options)}

    try:
        if run.__closure__ and "Iterative" in repr(run.__closure__[0].cell_contents):
            with pytest.warns(UserWarning, match="neither stored nor reused"):
                _, record = run(fileset, held, processor_compression=None)
            assert sum(record.not_stored.values()) == 40
    finally:
        handle.close()


TOOLS = """
from coffea.processor import ProcessorABC

CUT = 1
SEEN = []

class Analysis(ProcessorABC):
    def process(self, events):
        return {"sum": CUT * int(events.x.to_numpy().sum())}

class Remembering(Analysis):
    def process(self, events):
        SEEN.append(len(events))
        return super().process(events)

class Changing(Analysis):
    chunks = 0

    def process(self, events):
        self.chunks += 1
        return super().process(events)
"""


def set_cut(directory: str, cut: int) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.import_module("hepcache_test_tools").CUT = cut  # type: ignore[attr-defined]


@pytest.fixture
def tools(tmp_path: Path, hepcache_client: Client) -> Iterator[Any]:
    """Return a module of the user's, which the workers have imported, too."""
    (tmp_path / "hepcache_test_tools.py").write_text(TOOLS)
    directory = str(tmp_path)
    set_cut(directory, 1)
    hepcache_client.run(set_cut, directory, 1)
    yield sys.modules["hepcache_test_tools"]
    hepcache_client.run(forget_tools, directory)
    forget_tools(directory)


def forget_tools(directory: str) -> None:
    sys.modules.pop("hepcache_test_tools", None)
    sys.path.remove(directory)


@pytest.mark.parametrize("run", ["cluster"], indirect=True)
def test_a_module_that_changes_on_workers_stores_nothing(
    run: Run, fileset: dict[str, Any], tools: Any, hepcache_client: Client, tmp_path: Path
) -> None:
    run({"dy": fileset["dy"]}, tools.Analysis())
    hepcache_client.run(set_cut, str(tmp_path), 2)
    _, record = run(fileset, tools.Analysis())
    assert outcomes(record) == (20, 20)
    ((reason, number),) = record.not_stored.items()
    assert "changed since this worker's first chunk" in reason
    assert number == 20
    hepcache_client.run(set_cut, str(tmp_path), 1)
    output, record = run(fileset, tools.Analysis())
    assert outcomes(record) == (20, 20)
    assert output == {"sum": 3 * ENTRIES * (ENTRIES - 1) // 2}
    assert not record.not_stored


@pytest.mark.parametrize("run", ["cluster"], indirect=True)
def test_workers_of_other_code_store_nothing(
    run: Run, fileset: dict[str, Any], tools: Any, hepcache_client: Client, tmp_path: Path
) -> None:
    hepcache_client.run(set_cut, str(tmp_path), 2)
    for _ in range(2):
        _, record = run(fileset, tools.Analysis())
        assert outcomes(record) == (40, 0)
        ((reason, _),) = record.not_stored.items()
        assert "runs other code than the client" in reason


@pytest.mark.parametrize(("kind", "compression"), [("Remembering", 1), ("Changing", None)])
def test_a_processor_that_changes_what_it_uses_is_told_so(
    run: Run, fileset: dict[str, Any], tools: Any, kind: str, compression: int | None
) -> None:
    _, record = run(fileset, getattr(tools, kind)(), processor_compression=compression)
    # A worker may get the processor of another one, which has changed it.
    assert any("changed since this worker's first chunk" in reason for reason in record.not_stored)
    assert sum(record.not_stored.values()) == 40


def sees_nothing(text: str) -> Any:
    return eval(text)


def test_metadata_that_can_not_be_seen_into_are_computed_and_said(
    run: Run, fileset: dict[str, Any]
) -> None:
    fileset["tt"]["metadata"] = {"function": sees_nothing}
    for done in (40, 20):
        _, record = run(fileset, Counting())
        assert outcomes(record) == (done, 40 - done)
        ((reason, number),) = record.not_stored.items()
        assert "eval" in reason
        assert number == 20


def test_a_directory_that_others_can_reach_is_not_used(
    run: Run, fileset: dict[str, Any], hepcache_client: Any
) -> None:
    _, record = run(fileset, Counting())
    hosts = [settings().cache_directory, *hepcache_client.run(own_directory).values()]
    for directory in hosts:
        if (results := Path(directory) / "results").is_dir():
            results.chmod(0o777)
    try:
        hepcache_client.run(forget)
        forget()
        _, record = run(fileset, Counting())
        assert outcomes(record) == (40, 0)
        assert any("chmod 700" in reason for reason in record.not_stored)
    finally:
        for directory in hosts:
            if (results := Path(directory) / "results").is_dir():
                results.chmod(0o700)


def own_directory() -> Path:
    return settings().cache_directory


def test_divisible_chunks_are_not_reused(run: Run, fileset: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="the same chunks again"):
        run(fileset, Counting(), divisible=True)
    with pytest.raises(ConfigurationError, match="checkpointer"):
        run(fileset, Counting(), checkpointer=object())
    with pytest.raises(ConfigurationError, match="'compute' or 'reuse'"):
        run(fileset, Counting(), results="always")


def test_damaged_results_are_computed_again(
    request: pytest.FixtureRequest, run: Run, fileset: dict[str, Any]
) -> None:
    on_cluster = request.node.callspec.params["run"] != "iterative"
    if on_cluster:
        client = request.getfixturevalue("hepcache_client")
        client.run(clear_results)
    expected, _ = run(fileset, Counting())

    def damage() -> int:
        count = 0
        for path in sorted(worker_state().results.directory.glob("*/*.result"))[:1]:
            data = bytearray(path.read_bytes())
            data[-1] ^= 0xFF
            path.write_bytes(data)
            count += 1
        return count

    wait_until_added_up(client if on_cluster else None)
    if on_cluster:
        files = client.run(stored_files)
        damaged = max(client.run(damage, workers=[max(files, key=files.__getitem__)]).values())
    else:
        damaged = damage()
    assert damaged > 0
    output, record = run(fileset, Counting())
    done, reused = outcomes(record)
    assert done > 0
    assert reused > 0
    assert done + reused == 40
    assert output == expected
