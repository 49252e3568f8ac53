"""What ``skipbadfiles`` skips, what ``use_result_type`` makes of it, and where it is told."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import Err, Ok
from coffea.processor.executor import ExecutorBase, UprootMissTreeError, accumulate
from tests.cli.conftest import Hepcache

from hepcache import compat
from hepcache.errors import BadFileError, ChunkError, IncompleteWarning
from hepcache.report import CycleReport, RunRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore:(Skipping bad file|Performed attempt):UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
]

Compare = Callable[..., Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return files that are good and bad in their own ways, by name."""
    place = tmp_path_factory.mktemp("files")

    def written(name: str, tree: str = "Events") -> Path:
        path = place / f"{name}.root"
        with uproot.recreate(path) as file:
            columns = {"x": np.arange(20), "y": np.arange(20) * 0.5, "z": np.full(500, 2.0)[:20]}
            file.mktree(tree, columns)
        return path

    written("good")
    written("other tree", "Runs")
    damage(written("damaged"), "y")
    with uproot.recreate(place / "histogram.root") as file:
        file["Events"] = np.histogram([1, 2, 3])
    good = (place / "good.root").read_bytes()
    (place / "not ROOT.root").write_bytes(bytes(reversed(good)))
    (place / "empty.root").write_bytes(b"")
    (place / "short.root").write_bytes(good[:200])
    (place / "directory.root").mkdir()
    names = (
        "good", "other tree", "damaged", "histogram", "not ROOT", "empty", "short", "directory",
        "missing",
    )  # fmt: skip
    return {name: str(place / f"{name}.root") for name in names}


def damage(path: Path, column: str) -> None:
    """Turn the bits of a column's first basket."""
    with uproot.open(path) as file:
        branch = file["Events"][column]
        start = int(branch.member("fBasketSeek")[0]) + branch.basket_key(0).fKeylen + 9
        stop = int(branch.member("fBasketSeek")[0] + branch.member("fBasketBytes")[0])
    data = bytearray(path.read_bytes())
    data[start:stop] = bytes(byte ^ 0xFF for byte in data[start:stop])
    path.write_bytes(data)


def total(events: Any) -> dict[str, Any]:
    return {"events": len(events), "sum": float(ak.sum(events.x) + ak.sum(events.y))}


def has_a_bug(events: Any) -> dict[str, Any]:
    if events.metadata["entrystart"] == 10:
        raise KeyError("no such cut")
    return total(events)


def never_works(events: Any) -> dict[str, Any]:
    raise NotImplementedError(f"{len(events)} events")


def analysis(
    paths: list[str], process: Any, *, retries: int = 0, **options: Any
) -> Callable[[ModuleType, Any], Any]:
    """Return a script that runs a processor over files in chunks of ten."""
    fileset = {"dy": {"files": dict.fromkeys(paths, "Events")}}

    def script(processor: ModuleType, executor: Any) -> Any:
        executor.retries = retries
        run = processor.Runner(
            executor, schema=BaseSchema, chunksize=10, metadata_cache={}, **options
        )
        return run(fileset, process)

    return script


BAD = ["missing", "other tree", "histogram", "not ROOT", "empty", "short", "directory", "damaged"]
KINDS = [
    False, True, (KeyError,), (UprootMissTreeError,), (ValueError, AttributeError), OSError,
    (), None,
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD)
def test_what_coffea_skips_is_skipped(files: dict[str, str], compare: Compare, bad: str) -> None:
    for skipbadfiles in KINDS:
        for paths in ([files["good"], files[bad]], [files[bad]]):
            script = analysis(paths, total, skipbadfiles=skipbadfiles)
            compare(script, executors=("iterative",))


@pytest.mark.parametrize("process", [total, has_a_bug, never_works])
def test_chunks_that_coffea_skips_are_skipped(
    files: dict[str, str], compare: Compare, process: Any
) -> None:
    for skipbadfiles in (*KINDS, (NotImplementedError,), RuntimeError, Exception):
        script = analysis([files["good"]], process, skipbadfiles=skipbadfiles)
        compare(script, executors=("iterative",))


@pytest.mark.parametrize("bad", ["good", *BAD])
@pytest.mark.parametrize("process", [total, has_a_bug])
def test_results_are_ok_or_err_as_coffeas(
    files: dict[str, str], compare: Compare, bad: str, process: Any
) -> None:
    for skipbadfiles in (*KINDS, RuntimeError):
        for paths in ([files["good"], files[bad]], [files[bad]]):
            script = analysis(
                paths, process, skipbadfiles=skipbadfiles, use_result_type=True, savemetrics=False
            )
            compare(script, executors=("iterative",))


@pytest.mark.parametrize(
    ("bad", "process", "skipbadfiles"),
    [
        ("missing", total, True),
        ("missing", total, (KeyError,)),
        ("other tree", total, True),
        ("damaged", total, True),
        ("good", has_a_bug, True),
        ("good", has_a_bug, (KeyError,)),
        ("good", never_works, (NotImplementedError,)),
    ],
)
def test_a_cluster_skips_the_same(
    files: dict[str, str], compare: Compare, bad: str, process: Any, skipbadfiles: Any
) -> None:
    for use_result_type in (False, True):
        script = analysis(
            [files["good"], files[bad]], process,
            skipbadfiles=skipbadfiles, use_result_type=use_result_type,
        )  # fmt: skip
        compare(script, executors=("cluster",))


@pytest.mark.slow
@pytest.mark.parametrize("skipbadfiles", [True, (KeyError,)])
@pytest.mark.parametrize("use_result_type", [False, True])
def test_processes_skip_the_same(
    files: dict[str, str], compare: Compare, skipbadfiles: Any, use_result_type: bool
) -> None:
    options = {"skipbadfiles": skipbadfiles, "use_result_type": use_result_type}
    for paths in ([files["good"]], [files["good"], files["missing"]]):
        compare(analysis(paths, has_a_bug, **options), executors=("futures",))


@pytest.mark.parametrize("name", ["iterative", "cluster"])
def test_whoever_unwraps_an_error_gets_coffeas(
    files: dict[str, str], compare: Compare, name: str
) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        options = {"skipbadfiles": (KeyError,), "use_result_type": True}
        result = analysis([files["good"]], has_a_bug, **options)(processor, executor)
        assert isinstance(result, Err)
        assert not isinstance(result, Ok)
        return result.unwrap()

    compare(script, executors=(name,))


def test_attempts_are_counted_as_coffeas(
    files: dict[str, str], compare: Compare, tmp_path: Path
) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        calls: list[int] = []

        def flaky(events: Any) -> dict[str, Any]:
            calls.append(events.metadata["entrystart"])
            if len(calls) < 3:
                raise ValueError("not yet")
            return total(events)

        return analysis([files["good"]], flaky, retries=3)(processor, executor), calls

    compare(script, executors=("iterative",))


class Recoverable(ExecutorBase):
    """What coffea's tests take for an executor that ends early with what was done."""

    def __call__(self, items: Any, function: Any, accumulator: Any) -> Any:
        for item in items:
            try:
                accumulator = accumulate([function(item)], accumulator)
            except Exception as error:
                return accumulator, error
        return accumulator, 0


@pytest.mark.parametrize(
    ("skipbadfiles", "use_result_type"),
    [(False, False), (True, False), ((KeyError,), False), (True, True), ((KeyError,), True)],
)
def test_what_was_done_before_a_failure_is_kept(
    files: dict[str, str], compare: Compare, skipbadfiles: Any, use_result_type: bool
) -> None:
    def script(processor: ModuleType, _: Any) -> Any:
        options = {"skipbadfiles": skipbadfiles, "use_result_type": use_result_type}
        try:
            return analysis([files["good"]], has_a_bug, **options)(processor, Recoverable())
        except Exception as error:
            return error.partial_output  # type: ignore[attr-defined]

    compare(script, executors=("iterative",))


def test_what_a_run_that_ended_early_lacks_is_recorded(files: dict[str, str]) -> None:
    run = compat.Runner(
        Recoverable(), schema=BaseSchema, chunksize=5,
        skipbadfiles=(KeyError,), use_result_type=True,
    )  # fmt: skip
    result = run(fileset(files, "good"), has_a_bug)
    assert result.value["events"] == 10
    assert run.run_record is not None
    lacking = [(chunk.start, chunk.stop) for chunk in run.run_record.failed]
    assert lacking == [(10, 15), (15, 20)]
    assert "no such cut" in run.run_record.failed[0].message


@pytest.mark.parametrize("given", ["yes", 2.5, [OSError], (OSError, "yes"), int])
def test_what_names_no_exceptions_is_refused_before_anything_runs(
    files: dict[str, str], given: Any
) -> None:
    """coffea takes it, until a chunk fails."""
    run = compat.Runner(compat.IterativeExecutor(status=False), skipbadfiles=given)
    with pytest.raises(TypeError, match="skipbadfiles: expected True, False, an exception class"):
        run(fileset(files, "missing"), total)


def run_of(request: pytest.FixtureRequest, name: str, **options: Any) -> compat.Runner:
    if name == "cluster":
        client = request.getfixturevalue("hepcache_client")
        executor: Any = compat.DaskExecutor(client=client, status=False)
    else:
        executor = compat.IterativeExecutor(status=False, retries=0)
    return compat.Runner(executor, schema=BaseSchema, chunksize=10, **options)


def fileset(files: dict[str, str], *names: str) -> dict[str, Any]:
    return {"dy": {"files": {files[name]: "Events" for name in names}}}


@pytest.mark.parametrize("name", ["iterative", "cluster"])
def test_the_record_tells_what_the_result_lacks(
    request: pytest.FixtureRequest, files: dict[str, str], name: str
) -> None:
    run = run_of(request, name, skipbadfiles=(OSError, KeyError))
    with pytest.warns(IncompleteWarning) as caught:
        output = run(fileset(files, "good", "missing"), has_a_bug)
    assert output["events"] == 10
    record = run.run_record
    assert record is not None
    gone, failed = record.skipped
    assert (gone.dataset, gone.path, gone.events) == ("dy", files["missing"], None)
    assert "no such file" in gone.message
    assert (failed.path, failed.tree, failed.start, failed.stop) == (
        files["good"], "Events", 10, 20,
    )  # fmt: skip
    assert "KeyError('no such cut')" in failed.message
    assert f"{Path(__file__).name}" in failed.message
    assert record.lacking_events == 10
    assert record.problems == {files["missing"]: gone.message}
    first, last = [str(one.message) for one in caught if one.category is IncompleteWarning]
    assert files["missing"] in first
    assert "10 events of 1 chunk that was skipped" in last
    assert "all events of 1 file that can't be opened (how many is unknown)" in last


def test_the_record_survives_its_way_into_a_report(
    request: pytest.FixtureRequest, files: dict[str, str], tmp_path: Path
) -> None:
    run = run_of(request, "iterative", skipbadfiles=(OSError, KeyError))
    run(fileset(files, "good", "missing"), has_a_bug)
    assert run.run_record is not None
    report = CycleReport((run.run_record,))
    again = CycleReport.read(report.to_json(tmp_path / "report.json"))
    assert list(again.records[0].skipped) == list(run.run_record.skipped)
    (summary,) = json.loads((tmp_path / "report.json").read_text())["summaries"]
    assert (summary["skipped_files"], summary["skipped_chunks"]) == (1, 1)
    assert summary["lacking_events"] == 10
    page = report.to_html(tmp_path / "report.html").read_text()
    assert "What the result lacks" in page
    assert "10 to 20" in page
    assert files["missing"] in page
    assert "10 events of 1 chunk" in str(report)
    assert pickle.loads(pickle.dumps(run.run_record)) == run.run_record


def test_a_record_of_before_chunks_were_counted_is_read(
    request: pytest.FixtureRequest, files: dict[str, str]
) -> None:
    run = run_of(request, "iterative")
    run(fileset(files, "good"), total)
    assert run.run_record is not None
    data = run.run_record.to_dict()
    del data["skipped"]
    data["problems"] = {"/gone.root": "no such file"}
    (gone,) = RunRecord.from_dict(data).skipped
    assert (gone.path, gone.events, gone.message) == ("/gone.root", None, "no such file")


def test_files_that_were_skipped_before_are_told_with_their_chunks(
    request: pytest.FixtureRequest, files: dict[str, str]
) -> None:
    run = run_of(request, "iterative", skipbadfiles=True)
    chunks = list(run.preprocess(fileset(files, "good", "missing")))
    assert run(chunks, total)["events"] == 20
    assert run.run_record is not None
    assert [one.path for one in run.run_record.skipped] == [files["missing"]]


def test_chunks_that_coffea_cut_of_files_that_are_gone(
    files: dict[str, str], compare: Compare, tmp_path: Path
) -> None:
    from coffea import processor as coffea

    path = tmp_path / "gone.root"
    path.write_bytes(Path(files["good"]).read_bytes())
    plain = coffea.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema, chunksize=10)
    chunks = list(
        plain.preprocess({"dy": {"files": {files["good"]: "Events", str(path): "Events"}}})
    )
    path.unlink()

    def script(processor: ModuleType, executor: Any, **options: Any) -> Any:
        executor.retries = 0
        return processor.Runner(executor, schema=BaseSchema, **options)(chunks, total)

    compare(script, executors=("iterative",))
    for options in ({"skipbadfiles": True}, {"skipbadfiles": True, "use_result_type": True}):
        compare(lambda *given, o=options: script(*given, **o), executors=("iterative",))
    run = compat.Runner(
        compat.IterativeExecutor(status=False), schema=BaseSchema, skipbadfiles=True
    )
    assert run(chunks, total)["events"] == 20
    assert run.run_record is not None
    assert [one.events for one in run.run_record.skipped] == [10, 10]


def test_a_run_that_failed_leaves_no_record_of_another(
    request: pytest.FixtureRequest, files: dict[str, str]
) -> None:
    run = run_of(request, "iterative")
    run(fileset(files, "good"), total)
    assert run.run_record is not None
    with pytest.raises(ChunkError):
        run(fileset(files, "good"), never_works)
    assert run.run_record is None


def test_all_bad_files_are_named_with_their_datasets(
    request: pytest.FixtureRequest, files: dict[str, str]
) -> None:
    run = run_of(request, "iterative")
    both = {**fileset(files, "missing", "other tree"), "tt": fileset(files, "missing")["dy"]}
    with pytest.raises(BadFileError) as caught:
        run(both, total)
    assert isinstance(caught.value, FileNotFoundError)
    assert set(caught.value.problems) == {files["missing"], files["other tree"]}
    assert f"{files['missing']} (datasets dy, tt): no such file" in str(caught.value)
    assert f"{files['other tree']} (dataset dy): no tree 'Events'" in str(caught.value)


@pytest.mark.parametrize("name", ["iterative", "cluster"])
def test_a_run_without_results_says_why(
    request: pytest.FixtureRequest, files: dict[str, str], name: str
) -> None:
    run = run_of(request, name, skipbadfiles=(NotImplementedError,))
    with pytest.raises(
        ValueError, match=r"No chunks returned.*NotImplementedError\('10 events'\)"
    ):
        run(fileset(files, "good"), never_works)


SCRIPT = """
from coffea import processor

class Total(processor.ProcessorABC):
    def process(self, events):
        if events.metadata["entrystart"] == 10:
            raise OSError("no corrections.json")
        return {"events": len(events)}

    def postprocess(self, accumulator):
        pass
"""


@pytest.mark.parametrize("tolerant", [True, False])
def test_the_command_ends_with_what_the_result_lacks(
    files: dict[str, str],
    tmp_path: Path,
    hepcache_client: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tolerant: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    hepcache = Hepcache(capsys, monkeypatch)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = [files[name] for name in ("good", "missing", "other tree", "not ROOT")]
    arguments: list[Any] = [
        f"{script}:Total", *paths,
        "--scheduler", hepcache_client.scheduler.address, "--chunksize", 10,
        "--schema", "BaseSchema", "--out", tmp_path / "out", "--json",
    ]  # fmt: skip
    if not tolerant:
        code, out, err = hepcache("run", *arguments)
        assert (code, out) == (1, "")
        assert "1 file can't be analysed" in err  # what is not there is known at once
        assert files["missing"] in err
        arguments.remove(files["missing"])
        code, out, err = hepcache("run", *arguments)
        assert (code, out) == (1, "")
        assert "2 files can't be analysed" in err
        return
    code, out, err = hepcache("run", *arguments, "--skip-bad-files")
    assert code == 3, err
    (run,) = json.loads(out)["runs"]
    assert run["problems"].keys() == {files["missing"], files["other tree"], files["not ROOT"]}
    assert [one["start"] for one in run["skipped"]] == [None, None, None, 10]
    *_, first, second, third, chunk, covered, last = err.strip().splitlines()
    assert f"skipped {files['missing']}" in first
    assert "no tree 'Events' in it; the trees there are: Runs" in second
    assert "not a ROOT file" in third
    assert f"skipped {files['good']}, entries 10 to 20" in chunk
    assert "no corrections.json" in chunk
    assert covered.endswith("10 of 20 events, and none of 3 files that can't be opened")
    assert last == (
        "The result lacks 10 events of 1 chunk that was skipped, and all events of 3 files that "
        "can't be opened (how many is unknown)."
    )
    assert "What the result lacks" in (tmp_path / "out" / "report.html").read_text()
