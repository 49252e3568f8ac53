"""Every chunk of a run is done, skipped or failed; what is missing is processed again alone."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import awkward as ak
import hist
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import Err, Ok
from coffea.util import load
from distributed import Client
from tests.cli.conftest import Hepcache
from tests.versions import since

import hepcache
from hepcache import compat
from hepcache.dashboard.monitor import Monitor
from hepcache.errors import (
    BadFileError,
    ChunkError,
    ConfigurationError,
    IncompleteWarning,
    RetryError,
    WorkerKilledError,
)
from hepcache.process.chunk import plain
from hepcache.process.partial_run import PartialRun
from hepcache.report import CycleReport, RunRecord
from hepcache.results.store import ResultStore
from hepcache.scheduling.client_requests import NAME as PLACEMENT

pytestmark = [
    pytest.mark.filterwarnings("ignore:(Skipping bad file|Performed attempt):UserWarning"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
]

EXECUTORS = ["iterative", "cluster"]
ENTRIES = 200


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("outcomes")
    found = {}
    for number, name in enumerate(("dy", "tt")):
        found[name] = place / f"{name}.root"
        with uproot.recreate(found[name]) as file:
            file.mktree("Events", {"x": np.arange(ENTRIES) * (number + 1)})
    return found


class Analysis(compat.ProcessorABC):
    """Fills a histogram; raises at some chunks as long as a directory has a file for them."""

    def __init__(self, broken: Path) -> None:
        self.broken = broken

    def process(self, events: Any) -> dict[str, Any]:
        dataset, start = events.metadata["dataset"], events.metadata["entrystart"]
        marker = self.broken / f"{dataset}-{start}"
        if marker.exists():
            kind = marker.read_text()
            if kind == "kill":
                os._exit(1)
            raise {"KeyError": KeyError, "OSError": OSError}[kind](f"no cut at {start}")
        counts = hist.Hist.new.StrCat([], name="dataset", growth=True).Reg(10, 0, 400).Int64()
        counts.fill(dataset, ak.to_numpy(events.x))
        return {"x": counts, "events": {dataset: len(events)}, "sum": int(ak.sum(events.x))}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        accumulator["finished"] = accumulator.get("finished", 0) + 1
        return accumulator


def equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Compare outputs; categories come in the order in which chunks ended."""
    same = all(left[name] == right[name] for name in ("events", "sum", "finished"))
    datasets = sorted(right["events"])
    return same and all(
        np.array_equal(left["x"][name, :].values(), right["x"][name, :].values())
        for name in datasets
    )


class Case:
    """A run of the analysis with some chunks broken."""

    def __init__(self, run: Callable[..., compat.Runner], paths: dict[str, Path], broken: Path):
        self.run, self.broken = run, broken
        self.fileset = {
            name: {"files": {str(path): "Events"}, "metadata": {"kind": name}}
            for name, path in paths.items()
        }
        self.analysis = Analysis(broken)
        self.paths = paths

    def damage(self, *chunks: tuple[str, int], kind: str = "KeyError") -> None:
        for dataset, start in chunks:
            (self.broken / f"{dataset}-{start}").write_text(kind)

    def mend(self) -> None:
        for marker in self.broken.iterdir():
            marker.unlink()

    def undisturbed(self) -> dict[str, Any]:
        output: dict[str, Any] = self.run()(self.fileset, self.analysis)
        return output


@pytest.fixture
def case(request: pytest.FixtureRequest, paths: dict[str, Path], tmp_path: Path) -> Iterator[Case]:
    name = getattr(request, "param", "cluster")
    with ExitStack() as stack:
        yield _case(request, paths, tmp_path, name, stack)


def _case(
    request: pytest.FixtureRequest,
    paths: dict[str, Path],
    tmp_path: Path,
    name: str,
    stack: ExitStack,
) -> Case:
    own: Any = None
    if name == "own cluster":  # whose workers may be killed
        cluster = stack.enter_context(
            hepcache.LocalCluster(hosts=2, cache_directory=tmp_path / "hosts")
        )
        own = stack.enter_context(Client(cluster, set_as_default=False))

    def run(**options: Any) -> compat.Runner:
        if name != "iterative":
            client = own or request.getfixturevalue("hepcache_client")
            executor: Any = compat.DaskExecutor(client=client, status=False, retries=1)
        else:
            executor = compat.IterativeExecutor(status=False, retries=1)
        return compat.Runner(executor, schema=BaseSchema, chunksize=10, **options)

    broken = tmp_path / "broken"
    broken.mkdir()
    return Case(run, paths, broken)


def record_of(run: compat.Runner) -> RunRecord:
    assert run.run_record is not None
    return run.run_record


@since("coffea", "2026.9")  # before, it tries again only what may be skipped
@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_what_failed_is_listed_and_processed_again(case: Case) -> None:
    expected = case.undisturbed()
    random.seed(7)
    chunks = [(name, start) for name in case.paths for start in range(0, ENTRIES, 10)]
    broken = random.sample(chunks, len(chunks) // 10)
    case.damage(*broken)
    run = case.run(failures="collect")
    with pytest.warns(IncompleteWarning, match=r"lacks 40 events of 4 chunks that failed"):
        output = run(case.fileset, case.analysis)
    record = record_of(run)
    assert sum(output["events"].values()) == 2 * ENTRIES - 40
    assert sorted((part.dataset, part.start) for part in record.failed) == sorted(broken)
    assert {part.stop - part.start for part in record.failed} == {10}  # type: ignore[operator]
    first = record.failed[0]
    assert (first.exception, first.path) == ("KeyError", str(case.paths[first.dataset]))
    assert f"KeyError('no cut at {first.start}')" in first.message
    assert "in process" in first.traceback
    assert first.host
    assert first.attempts >= 2  # one again, by the executor
    assert not record.complete
    assert (len(record.chunks), len(record.failed), record.lacking_events) == (36, 4, 40)
    for name, covered in record.coverage().items():
        lost = 10 * sum(dataset == name for dataset, _ in broken)
        assert (covered.events, covered.missing_events) == (ENTRIES - lost, lost)
    done = {(chunk.dataset, chunk.start) for chunk in record.chunks}
    assert done.isdisjoint(broken)
    assert done | set(broken) == set(chunks)
    # Of what is broken now, half is mended before the first retry.
    case.mend()
    case.damage(*broken[:2])
    output = run.retry(record)
    again = record_of(run)
    assert sorted((part.dataset, part.start) for part in again.failed) == sorted(broken[:2])
    assert again.failed[0].attempts > first.attempts
    assert sum(output["events"].values()) == 2 * ENTRIES - 20
    case.mend()
    output = run.retry()
    assert equal(output, expected)
    assert record_of(run).complete
    assert len(record_of(run).chunks) == len(chunks)
    with pytest.raises(RetryError, match="lacks no events"):
        run.retry()


def test_the_report_tells_of_what_failed(case: Case, tmp_path: Path) -> None:
    case.damage(("dy", 30), kind="OSError")
    case.damage(("tt", 50))
    run = case.run(failures="collect", skipbadfiles=True)
    run(case.fileset, case.analysis)
    record = record_of(run)
    assert [(part.start, part.outcome) for part in record.missing] == [
        (50, "failed"),
        (30, "skipped"),
    ]
    report = CycleReport((record,))
    again = CycleReport.read(report.to_json(tmp_path / "report.json")).records[0]
    assert list(again.failed) == list(record.failed)
    page = report.to_html(tmp_path / "report.html").read_text()
    for words in ("What the result lacks", "190 of 200 events", "no cut at 50", "runner.retry()"):
        assert words in page
    words = " ".join(str(report).split())
    assert "10 events of 1 chunk that failed, and 10 events of 1 chunk that was skipped" in words


async def watch(dask_scheduler: Any) -> None:
    """Follow runs as the dashboard does."""
    monitor = Monitor(dask_scheduler.plugins[PLACEMENT])
    await monitor.start(dask_scheduler)
    dask_scheduler.add_plugin(monitor)


async def lacking(dask_scheduler: Any, *, last: bool) -> tuple[int, int, int, int]:
    """Return chunks of the latest run: all, failed, skipped, and events of those processed."""
    monitor = dask_scheduler.plugins[Monitor.name]
    now = monitor.snapshot()
    if last:
        await monitor.close()
        dask_scheduler.remove_plugin(Monitor.name)
    failed = sum(host.failed for host in now.hosts)
    skipped = sum(host.skipped for host in now.hosts)
    return now.chunks, failed, skipped, now.tally.events


def test_the_dashboard_counts_what_failed_and_what_was_skipped(
    case: Case, hepcache_client: Client
) -> None:
    case.damage(("dy", 30), ("dy", 60), kind="OSError")
    case.damage(("tt", 50))
    hepcache_client.run_on_scheduler(watch)
    run = case.run(failures="collect", skipbadfiles=True)
    run(case.fileset, case.analysis)
    assert (len(record_of(run).failed), len(record_of(run).skipped)) == (1, 2)
    # Workers tell with their heartbeats.
    until = time.monotonic() + 10
    while hepcache_client.run_on_scheduler(lacking, last=False)[3] < 370:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert hepcache_client.run_on_scheduler(lacking, last=True) == (40, 1, 2, 370)


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_a_run_ends_at_the_first_failure_unless_told_otherwise(case: Case) -> None:
    case.damage(("dy", 30), ("tt", 50))
    run = case.run()
    with pytest.raises(ChunkError, match="KeyError"):
        run(case.fileset, case.analysis)
    assert run.run_record is None
    with pytest.raises(RetryError):
        run.retry()


def test_the_error_says_how_to_keep_what_was_done(case: Case) -> None:
    case.damage(*[("dy", start) for start in range(0, ENTRIES, 10)])
    with pytest.raises(ChunkError) as caught:
        case.run()(case.fileset, case.analysis)
    assert any('failures="collect"' in note for note in caught.value.__notes__)


@since("coffea", "2026.9")  # before, it tries again only what may be skipped
@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_nothing_succeeded(case: Case) -> None:
    case.damage(*[(name, start) for name in case.paths for start in range(0, ENTRIES, 10)])
    run = case.run(failures="collect")
    with pytest.raises(ChunkError, match="KeyError") as caught:
        run(case.fileset, case.analysis)
    assert any("All 40 chunks" in note for note in caught.value.__notes__)
    assert (len(record_of(run).failed), len(record_of(run).chunks)) == (40, 0)
    with pytest.raises(ChunkError):
        run.retry()
    assert {part.attempts for part in record_of(run).failed} == {4}
    case.mend()
    assert equal(run.retry(), case.undisturbed())
    assert record_of(run).complete


@pytest.mark.slow
@pytest.mark.parametrize("case", ["own cluster"], indirect=True)
def test_chunks_that_kill_their_workers_are_collected(case: Case) -> None:
    expected = case.undisturbed()
    case.damage(("dy", 30), kind="kill")
    with pytest.raises(WorkerKilledError):
        case.run()(case.fileset, case.analysis)
    run = case.run(failures="collect")
    output = run(case.fileset, case.analysis)
    (part,) = record_of(run).failed
    assert (part.dataset, part.start, part.exception) == ("dy", 30, "WorkerKilledError")
    assert part.attempts > 1
    assert sum(output["events"].values()) == 2 * ENTRIES - 10
    case.mend()
    assert equal(run.retry(), expected)


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_files_that_could_not_be_opened_are_processed_later(case: Case) -> None:
    expected = case.undisturbed()
    path = case.paths["tt"]
    aside = path.rename(path.with_suffix(".aside"))
    try:
        run = case.run(skipbadfiles=True)
        output = run(case.fileset, case.analysis)
        assert list(output["events"]) == ["dy"]
        (part,) = record_of(run).skipped
        assert (part.events, part.exception) == (None, "FileNotFoundError")
        assert record_of(run).coverage()["tt"].unopened_files == 1
        run.retry()
        assert not record_of(run).complete
    finally:
        aside.rename(path)
    assert equal(run.retry(), expected)
    assert record_of(run).complete


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_chunks_whose_file_is_away_are_not_forgotten(case: Case) -> None:
    expected = case.undisturbed()
    case.damage(("tt", 30))
    run = case.run(skipbadfiles=True, failures="collect")
    run(case.fileset, case.analysis)
    case.mend()
    path = case.paths["tt"]
    aside = path.rename(path.with_suffix(".aside"))
    try:
        for _ in range(2):
            # Each by another process, as the command does.
            before, run = run.partial_run, case.run(skipbadfiles=True, failures="collect")
            run.partial_run = before
            run.retry()
            assert record_of(run).coverage()["tt"].missing_events == 10
            assert [part.start for part in record_of(run).skipped] == [30]
    finally:
        aside.rename(path)
    assert equal(run.retry(), expected)
    assert record_of(run).complete


def test_chunks_that_coffea_cut_of_files_that_were_away_are_processed_later(case: Case) -> None:
    expected = case.undisturbed()
    run = case.run(skipbadfiles=True)
    chunks = [plain(chunk) for chunk in run.preprocess(case.fileset)]
    path = case.paths["tt"]
    aside = path.rename(path.with_suffix(".aside"))
    try:
        run(chunks, case.analysis)
    finally:
        aside.rename(path)
    assert record_of(run).lacking_events == ENTRIES
    assert equal(run.retry(), expected)
    assert record_of(run).complete


def test_what_can_not_be_completed_is_not_taken_for_complete(case: Case) -> None:
    case.damage(("tt", 30))
    run = case.run(failures="collect")
    run(case.fileset, case.analysis)
    assert run.partial_run is not None
    run.partial_run = replace(run.partial_run, chunks=())
    with pytest.raises(RetryError, match="lacks 10 events, of which 0 could be processed"):
        run.retry()


@contextmanager
def away(path: Path) -> Iterator[None]:
    """Keep a file away meanwhile."""
    aside = path.rename(path.with_suffix(".aside"))
    try:
        yield
    finally:
        aside.rename(path)


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
def test_collect_lists_files_that_can_not_be_opened(case: Case) -> None:
    expected = case.undisturbed()
    case.damage(("dy", 30))
    run = case.run(failures="collect")
    with away(case.paths["tt"]):
        with pytest.warns(IncompleteWarning, match=r"Failed: .*\n.*tt\.root \(dataset tt\)"):
            output = run(case.fileset, case.analysis)
        assert output["events"] == {"dy": ENTRIES - 10}
        unknown, known = record_of(run).failed
        assert (known.start, unknown.events, unknown.dataset) == (30, None, "tt")
        assert (unknown.exception, unknown.outcome) == ("FileNotFoundError", "failed")
        assert "no such file" in unknown.message
        assert not record_of(run).skipped
        case.mend()
        assert run.retry()["events"] == {"dy": ENTRIES}
        assert [part.events for part in record_of(run).failed] == [None]
    assert equal(run.retry(), expected)
    assert record_of(run).complete


@pytest.mark.parametrize("case", ["iterative"], indirect=True)
def test_files_that_skipbadfiles_names_are_skipped_and_others_collected(case: Case) -> None:
    damaged = case.broken / "damaged.root"
    damaged.write_bytes(b"no ROOT file" * 100)
    files = {str(path): "Events" for path in (*case.paths.values(), damaged)}
    for skipbadfiles, outcome in ((OSError, "failed"), (ValueError, "skipped")):
        run = case.run(failures="collect", skipbadfiles=skipbadfiles, maxchunks=30)
        assert run({"both": {"files": files}}, case.analysis)["events"] == {"both": 300}
        (part,) = record_of(run).missing
        assert (part.outcome, part.exception) == (outcome, "ValueError")
    with pytest.raises(BadFileError, match=r"damaged\.root"):
        case.run(skipbadfiles=OSError)({"both": {"files": files}}, case.analysis)


def test_a_file_that_can_not_be_opened_is_an_err_with_the_others(case: Case) -> None:
    options = {"use_result_type": True, "skipbadfiles": True}
    run = case.run(failures="collect", **options)
    with away(case.paths["tt"]):
        result = run(case.fileset, case.analysis)
        assert isinstance(result, Err)
        assert isinstance(result.exception, FileNotFoundError)
        assert result.value["events"] == {"dy": ENTRIES}
        case.damage(("dy", 30), kind="OSError")
        again = case.run(**options)
        assert isinstance(again(case.fileset, case.analysis), Err)
        assert again.run_record is None
    result = again(case.fileset, case.analysis)
    assert result.value["events"] == {"dy": ENTRIES - 10, "tt": ENTRIES}
    with away(case.paths["dy"]):
        result = again.retry()
        assert isinstance(result, Err)
        assert isinstance(result.exception, FileNotFoundError)
        assert result.value["events"] == {"dy": ENTRIES - 10, "tt": ENTRIES}
    case.mend()
    for runner in (run, again):
        assert equal(runner.retry().unwrap(), case.undisturbed())


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
@pytest.mark.parametrize("later", [False, True])
def test_chunks_are_known_with_the_files_that_their_fileset_lacked(
    case: Case, later: bool
) -> None:
    run = case.run(skipbadfiles=True)
    other = {"zz": {"files": {"/gone.root": "Events", str(case.paths["dy"]): "Events"}}}
    with away(case.paths["tt"]):
        chunks = run.preprocess(case.fileset)
        if not later:
            chunks = list(chunks)
    run(other, case.analysis)
    output = run(chunks, case.analysis)
    assert output["events"] == {"dy": ENTRIES}
    assert [(part.dataset, part.path) for part in record_of(run).skipped] == [
        ("tt", str(case.paths["tt"]))
    ]
    assert set(run.retry()["events"]) == {"dy", "tt"}
    if isinstance(run.executor, hepcache.Executor):
        handle = run.submit(chunks if isinstance(chunks, list) else other, case.analysis)
        handle.result()
        assert handle.record is not None
        assert len(handle.record.skipped) == 1


@pytest.mark.parametrize("case", EXECUTORS, indirect=True)
@pytest.mark.parametrize("packed", [False, True])
def test_another_runner_knows_what_the_fileset_of_its_chunks_lacked(
    case: Case, packed: bool
) -> None:
    with away(case.paths["tt"]):
        chunks = list(case.run(skipbadfiles=True).preprocess(case.fileset))
    if packed:  # one by one, as a workflow passes them on
        chunks = [pickle.loads(pickle.dumps(chunk)) for chunk in chunks]
    run = case.run()
    assert run(chunks, case.analysis)["events"] == {"dy": ENTRIES}
    assert [(part.dataset, part.path) for part in record_of(run).skipped] == [
        ("tt", str(case.paths["tt"]))
    ]
    assert equal(run.retry(), case.undisturbed())


@pytest.mark.parametrize("case", ["iterative"], indirect=True)
def test_chunks_of_several_filesets_are_completed_together(case: Case) -> None:
    run = case.run(skipbadfiles=True)
    chunks: list[Any] = []
    for gone, kept in (("dy", "tt"), ("tt", "dy")):
        files = {str(case.paths[name]): "Events" for name in (gone, kept)}
        with away(case.paths[gone]):
            chunks += run.preprocess({"both": {"files": files}})
    assert run(chunks, case.analysis)["events"] == {"both": 2 * ENTRIES}
    assert len(record_of(run).skipped) == 2
    assert run.retry()["events"] == {"both": 4 * ENTRIES}


def test_maxchunks_limits_a_run_and_what_completes_it_together(case: Case) -> None:
    path = case.paths["dy"]
    files = {str(case.paths[name]): "Events" for name in ("dy", "tt")}
    aside = path.rename(path.with_suffix(".aside"))
    try:
        run = case.run(skipbadfiles=True, maxchunks=25)
        output = run({"both": {"files": files}}, case.analysis)
        assert output["events"] == {"both": ENTRIES}
    finally:
        aside.rename(path)
    assert run.retry()["events"] == {"both": 250}
    assert record_of(run).complete
    # What was completed limits no other run.
    assert run({"both": {"files": files}}, case.analysis)["events"] == {"both": 250}


@pytest.mark.parametrize("case", ["iterative"], indirect=True)
def test_ctrl_c_while_a_run_is_completed_is_raised(case: Case) -> None:
    class Interrupted(compat.IterativeExecutor):
        def __call__(self, items: Any, function: Any, accumulator: Any) -> Any:
            return function(items[0]), KeyboardInterrupt()

    case.damage(("dy", 30), ("dy", 40))
    run = case.run(failures="collect")
    run(case.fileset, case.analysis)
    expected = case.undisturbed
    case.mend()
    run.executor = Interrupted(status=False)
    with pytest.raises(KeyboardInterrupt):
        run.retry()
    assert [part.start for part in record_of(run).failed] == [40]
    run.executor = compat.IterativeExecutor(status=False)
    assert equal(run.retry(), expected())


def test_parts_of_different_contents_are_not_added_up(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "own.root"
    path.write_bytes(case.paths["dy"].read_bytes())
    fileset = {"dy": {"files": {str(path): "Events"}}}
    case.damage(("dy", 30))
    run = case.run(failures="collect")
    run(fileset, case.analysis)
    case.mend()
    path.write_bytes(case.paths["tt"].read_bytes())
    with pytest.raises(RetryError, match=r"own\.root"):
        run.retry()


@pytest.mark.parametrize("failures", ["raise", "collect"])
def test_a_result_with_what_failed_is_an_err_with_the_others(case: Case, failures: str) -> None:
    case.damage(("dy", 30))
    options = {"use_result_type": True, "skipbadfiles": (KeyError,), "failures": failures}
    run = case.run(**options)
    result = run(case.fileset, case.analysis)
    assert isinstance(result, Err)
    assert isinstance(result.exception, ChunkError)
    assert sum(result.value["events"].values()) == 2 * ENTRIES - 10
    assert [part.start for part in record_of(run).failed] == [30]
    case.mend()
    again = run.retry()
    assert isinstance(again, Ok)
    assert sum(again.unwrap()["events"].values()) == 2 * ENTRIES


def test_an_option_that_is_none_is_refused(case: Case) -> None:
    with pytest.raises(ConfigurationError, match="'raise' or 'collect'"):
        case.run(failures="ignore")(case.fileset, case.analysis)
    with pytest.raises(BadFileError):
        case.run(failures="collect")({"dy": {"files": {"/gone.root": "Events"}}}, case.analysis)


SCRIPT = """
import os
import pickle
from coffea import processor

class Total(processor.ProcessorABC):
    def __init__(self, marker):
        self.marker = marker

    def process(self, events):
        if events.metadata["entrystart"] == 30 and os.path.exists(self.marker):
            raise ValueError("no cut")
        return {"events": len(events), "sum": int(events.x.to_numpy().sum())}

    def postprocess(self, accumulator):
        return {**accumulator, "finished": True}
"""


def test_the_command_completes_what_a_run_has_left(
    paths: dict[str, Path],
    tmp_path: Path,
    hepcache_client: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    hepcache = Hepcache(capsys, monkeypatch)
    script, marker, out = tmp_path / "script.py", tmp_path / "marker", tmp_path / "out"
    script.write_text(SCRIPT)
    marker.touch()
    address = hepcache_client.scheduler.address
    arguments: list[Any] = [
        f"{script}:Total", *paths.values(),
        "--processor-args", json.dumps({"marker": str(marker)}),
        "--scheduler", address, "--chunksize", 10, "--schema", "BaseSchema", "--out", out,
    ]  # fmt: skip
    code, _, err = hepcache("run", *arguments)
    assert code == 1
    assert "--collect" in err
    # Others could put something else in the place of what --retry loads.
    out.chmod(0o775)
    code, printed, err = hepcache("run", *arguments, "--collect")
    assert code == 3, err
    assert "--retry will not be possible" in printed + err
    assert load(out / "out.coffea")["events"] == 2 * ENTRIES - 20
    out.chmod(0o755)
    code, printed, err = hepcache("run", *arguments, "--collect")
    assert code == 3, err
    assert f"hepcache run --retry {out}" in printed + err
    assert load(out / "out.coffea")["events"] == 2 * ENTRIES - 20
    assert json.loads((out / "report.json").read_text())["runs"][0]["complete"] is False
    again: list[Any] = ["run", "--retry", out, "--scheduler", address]
    code, _, err = hepcache(*again)
    assert code == 3, err
    marker.unlink()
    script.write_text("another version")
    code, _, err = hepcache(*again)
    assert code == 0, err
    expected = ENTRIES * (ENTRIES - 1) // 2 * 3
    assert load(out / "out.coffea") == {"events": 2 * ENTRIES, "sum": expected, "finished": True}
    (run,) = json.loads((out / "report.json").read_text())["runs"]
    assert (run["complete"], len(run["chunks"]), run["failed"]) == (True, 40, [])
    code, _, err = hepcache(*again)
    assert code == 1
    assert "no run is kept there that lacks events" in err
    code, _, err = hepcache(*again, f"{script}:Total")
    assert code == 2
    assert "give none" in err


def test_the_command_collects_files_that_can_not_be_opened(
    paths: dict[str, Path],
    tmp_path: Path,
    hepcache_client: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hepcache = Hepcache(capsys, monkeypatch)
    script, out, bad = tmp_path / "script.py", tmp_path / "out", tmp_path / "bad.root"
    script.write_text(SCRIPT)
    bad.write_bytes(b"no ROOT file" * 100)
    scheduler: list[Any] = ["--scheduler", hepcache_client.scheduler.address]
    code, printed, err = hepcache(
        "run", f"{script}:Total", paths["dy"], bad,
        "--processor-args", json.dumps({"marker": str(tmp_path / "none")}),
        "--schema", "BaseSchema", "--out", out, "--collect", *scheduler,
    )  # fmt: skip
    assert code == 3, err
    assert "1 file that can't be opened" in " ".join((printed + err).split())
    (run,) = json.loads((out / "report.json").read_text())["runs"]
    assert [part["path"] for part in run["failed"]] == [str(bad)]
    assert str(bad) in (out / "report.html").read_text()
    bad.write_bytes(paths["dy"].read_bytes())
    code, _, err = hepcache("run", "--retry", out, *scheduler)
    assert code == 0, err
    assert load(out / "out.coffea")["events"] == 2 * ENTRIES


def test_what_somebody_else_planted_is_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "out" / "unfinished"
    trace = tmp_path / "trace"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (trace,)

    store = ResultStore(place, 1 << 40)
    work = hashlib.blake2b(b"partial run", digest_size=16).hexdigest()
    store.put(work, work, [(0, 1)], Trap())
    (place / "key").unlink()
    with pytest.raises(RetryError):
        PartialRun.load(place)
    assert not trace.exists()
    store = ResultStore(place, 1 << 40)
    store.put(work, work, [(0, 1)], Trap())
    with pytest.raises(RetryError):
        PartialRun.load(place)
    assert trace.exists()  # the trap works where the key is right
