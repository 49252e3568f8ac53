"""A run that is submitted: progress, partial results, cancelling; and Ctrl-C."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from distributed import Client

import hepcache
from hepcache import compat
from hepcache.errors import ChunkError, ConfigurationError, RetryError
from hepcache.process.run_handle import RunHandle

pytestmark = pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning")

ENTRIES = 100


@pytest.fixture(scope="module")
def fileset(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("submit")
    found = {}
    for number, name in enumerate(("dy", "tt")):
        with uproot.recreate(place / f"{name}.root") as file:
            file.mktree("Events", {"x": np.arange(ENTRIES) * (number + 1)})
        found[name] = {"files": {str(place / f"{name}.root"): "Events"}}
    return found


class Gated(compat.ProcessorABC):
    """Waits at the chunks of one dataset until a file is there."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def process(self, events: Any) -> dict[str, Any]:
        dataset, start = events.metadata["dataset"], events.metadata["entrystart"]
        while dataset == "tt" and start == 90 and not self.gate.exists():
            time.sleep(0.01)
        self.gate.with_name(f"{dataset}-{start}").touch()
        return {"sum": int(ak.sum(events.x)), "events": {dataset: len(events)}}

    def postprocess(self, accumulator: Any) -> Any:
        return {**accumulator, "finished": True}


@pytest.fixture(scope="module")
def own_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Client of two simulated hosts, whose workers no other test has killed or keeps busy."""
    home = tmp_path_factory.mktemp("submit-hosts")
    with (
        hepcache.LocalCluster(hosts=2, cache_directory=home) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def runner(own_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a run of which nothing is known, every chunk is a task of its own."""
    executor = compat.DaskExecutor(client=own_client, status=False, retries=0)
    catalogue = tmp_path_factory.mktemp("catalogue") / "catalogue.sqlite"
    with dask.config.set({"hepcache.catalogue": str(catalogue)}):
        yield compat.Runner(executor, schema=BaseSchema, chunksize=10)


class Slow:
    """A number that takes time to add up."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: Slow) -> Slow:
        time.sleep(0.2)
        return Slow(self.value + other.value)


def until(condition: Callable[[], bool], within_s: float = 60) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


SUMS = {"dy": ENTRIES * (ENTRIES - 1) // 2, "tt": ENTRIES * (ENTRIES - 1)}


def test_a_run_tells_how_far_it_is(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    handle = runner.submit(fileset, Gated(gate))
    assert isinstance(handle, RunHandle)
    # One of the two workers waits; the other does all the rest.
    until(lambda: "dy" in handle.progress.complete)
    assert not handle.done
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    complete = handle.partial("dy")
    assert complete == {"sum": SUMS["dy"], "events": {"dy": ENTRIES}}
    progress = handle.progress
    assert progress.total.chunks == 20
    assert 10 <= progress.total.done_chunks < 20
    partial = handle.partial()
    assert partial["events"]["dy"] == ENTRIES
    assert sum(partial["events"].values()) < 2 * ENTRIES
    assert "of 20 chunks" in repr(handle)
    assert "dy" in handle._repr_html_()
    gate.touch()
    result = handle.result(60)
    assert result["finished"]
    assert result["sum"] == sum(SUMS.values())
    assert result["events"] == {"dy": ENTRIES, "tt": ENTRIES}
    assert handle.progress.complete == ["dy", "tt"]
    assert handle.partial("tt")["sum"] == SUMS["tt"]
    assert handle.record is not None
    assert handle.record.complete
    assert runner.run_record is None  # the handle's run is its own


def test_a_run_is_cancelled(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path, own_client: Any
) -> None:
    gate = tmp_path / "gate"
    handle = runner.submit(fileset, Gated(gate))
    until(lambda: handle.progress.total.done_chunks >= 10)
    handle.cancel()
    with pytest.raises(CancelledError):
        handle.result(60)
    assert "cancelled" in repr(handle)
    assert handle.record is not None
    known = len(handle.record.chunks)
    assert 0 < known < 20
    assert sum(handle.partial()["events"].values()) == 10 * known
    # The cluster is free for the next run.
    again = handle.retry()
    with pytest.raises(RetryError, match="goes on"):
        again.retry()
    gate.touch()
    assert again.result(60)["sum"] == sum(SUMS.values())
    assert again.record is not None
    assert (again.record.complete, len(again.record.chunks)) == (True, 20)
    with pytest.raises(RetryError, match="lacks no events"):
        again.retry()
    assert runner(fileset, Gated(gate))["sum"] == sum(SUMS.values())


def test_a_run_that_was_cancelled_at_once_is_begun_again(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    handle = runner.submit(fileset, Gated(gate))
    handle.cancel()
    with pytest.raises(CancelledError):
        handle.result(60)
    assert handle.retry().result(60)["sum"] == sum(SUMS.values())


def test_a_run_that_is_cancelled_while_results_are_merged_says_so(
    own_client: Any, fileset: dict[str, Any]
) -> None:
    def slow(events: Any) -> dict[str, Any]:
        return {"sum": Slow(int(ak.sum(events.x)))}

    executor = compat.DaskExecutor(client=own_client, status=False, retries=0, treereduction=2)
    runner = compat.Runner(executor, schema=BaseSchema, chunksize=10)
    handle = runner.submit(fileset, slow)
    until(lambda: handle.progress.total.done_chunks == 20)
    handle.cancel()
    with pytest.raises(CancelledError):
        handle.result(60)
    assert handle.retry().result(60)["sum"].value == sum(SUMS.values())


def test_what_postprocess_changes_in_place_is_no_partial_result(
    runner: compat.Runner, fileset: dict[str, Any]
) -> None:
    class InPlace(compat.ProcessorABC):
        def process(self, events: Any) -> dict[str, Any]:
            return {"events": {events.metadata["dataset"]: len(events)}}

        def postprocess(self, accumulator: Any) -> None:
            accumulator["events"]["dy"] = -1

    runner.executor.compression = None
    only = {"dy": fileset["dy"]}
    handle = runner.submit(only, InPlace())
    assert handle.result(60) == {"events": {"dy": -1}}
    assert handle.partial("dy") == {"events": {"dy": ENTRIES}}


def test_what_fails_is_raised_by_the_result(
    runner: compat.Runner, fileset: dict[str, Any]
) -> None:
    def failing(events: Any) -> Any:
        raise KeyError("no such cut")

    handle = runner.submit(fileset, failing)
    with pytest.raises(ChunkError, match="no such cut"):
        handle.result(60)
    with pytest.raises(RetryError, match='failures="collect"'):
        handle.retry()


def test_a_submitted_run_is_completed(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path
) -> None:
    def flaky(events: Any) -> Any:
        if events.metadata["entrystart"] == 50 and not (tmp_path / "mended").exists():
            raise KeyError("no such cut")
        return {"events": len(events)}

    handle = dataclasses.replace(runner, failures="collect").submit(fileset, flaky)
    assert handle.result(60) == {"events": 2 * ENTRIES - 20}
    assert handle.retry().result(60) == {"events": 2 * ENTRIES - 20}
    (tmp_path / "mended").touch()
    assert handle.retry().result(60) == {"events": 2 * ENTRIES}


def test_nothing_is_waited_for_after_a_run_has_failed(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path
) -> None:
    def failing(events: Any) -> Any:
        if (events.metadata["dataset"], events.metadata["entrystart"]) == ("dy", 90):
            while not (tmp_path / "gate").exists():
                time.sleep(0.01)
            raise KeyError("no such cut")
        return {"events": len(events)}

    handle = runner.submit(fileset, failing)
    until(lambda: handle.partial("tt") is not None)
    (tmp_path / "gate").touch()
    with pytest.raises(ChunkError, match="no such cut"):
        handle.result(60)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(handle.partial("tt")), daemon=True)
    thread.start()
    thread.join(30)
    assert found == [None]


def test_only_clusters_take_runs() -> None:
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema)
    with pytest.raises(ConfigurationError, match="with the client of a cluster"):
        run.submit({}, len)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_run_keeps_what_is_done(
    runner: compat.Runner, fileset: dict[str, Any], tmp_path: Path, times: int
) -> None:
    gate = tmp_path / "gate"
    if times == 2:  # the file is named twice, so its events count twice
        (path,) = fileset["dy"]["files"]
        fileset = {**fileset, "dy": {"files": [path, path], "treename": "Events"}}

    def interrupt() -> None:
        # What waits behind the gate may stay there: so short a chunk is not worth a move.
        until(lambda: len(list(tmp_path.iterdir())) > 4)
        time.sleep(1)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        runner(fileset, Gated(gate))
    thread.join()
    assert any("runner.retry()" in note for note in caught.value.__notes__)
    record = runner.run_record
    assert record is not None
    assert not record.complete
    assert len(record.chunks) + len(record.failed) == 10 * (times + 1)
    assert record.chunks
    gate.touch()
    output = runner.retry()
    assert output["sum"] == times * SUMS["dy"] + SUMS["tt"]
    assert output["events"] == {"dy": times * ENTRIES, "tt": ENTRIES}
    assert runner.run_record is not None
    assert runner.run_record.complete
