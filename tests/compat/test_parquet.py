"""Runs over parquet take coffea's own way to events, and are accounted for as all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import numpy as np
import pytest
from coffea.nanoevents import BaseSchema

from hepcache import compat
from hepcache.errors import BadFileError, ChunkError, IncompleteWarning
from hepcache.report import RunRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore:(Skipping bad file|Performed attempt):UserWarning"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
]

ROWS = 40
Run = Callable[..., compat.Runner]


def write(path: Path, rows: int = ROWS) -> Path:
    ak.to_parquet(ak.Array({"x": np.arange(rows), "y": np.arange(rows) * 0.5}), path)
    return path


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return {name: write(tmp_path / f"{name}.parquet") for name in ("dy", "tt")}


@pytest.fixture
def fileset(paths: dict[str, Path]) -> dict[str, Any]:
    return {
        name: {"files": [str(path)], "treename": "Events", "metadata": {"kind": name}}
        for name, path in paths.items()
    }


@pytest.fixture(params=["iterative", "cluster"])
def run(request: pytest.FixtureRequest) -> Run:
    def made(**options: Any) -> compat.Runner:
        if request.param == "cluster":
            client = request.getfixturevalue("hepcache_client")
            executor: Any = compat.DaskExecutor(client=client, status=False, retries=0)
        else:
            executor = compat.IterativeExecutor(status=False, retries=0)
        return compat.Runner(
            executor, schema=BaseSchema, chunksize=10, format="parquet", **options
        )

    return made


def sums(events: Any) -> dict[str, Any]:
    kind = events.metadata["kind"]
    return {"events": {kind: len(events)}, "sum": {kind: float(ak.sum(events.x + events.y))}}


def record_of(runner: compat.Runner) -> RunRecord:
    assert runner.run_record is not None
    return runner.run_record


def test_outputs_are_coffeas(compare: Callable[..., Any], fileset: dict[str, Any]) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        options = {"schema": BaseSchema, "format": "parquet", "chunksize": 10}
        output = processor.Runner(executor, metadata_cache={}, **options)(fileset, sums)
        return {name: dict(sorted(found.items())) for name, found in output.items()}

    compare(script, executors=("iterative", "futures"))


def test_every_chunk_is_in_the_record(run: Run, fileset: dict[str, Any]) -> None:
    runner = run()
    for _ in range(2):
        runner(fileset, sums)
        record = record_of(runner)
        assert record.complete
        assert {name: found.events for name, found in record.coverage().items()} == {
            "dy": ROWS,
            "tt": ROWS,
        }
        assert sorted((chunk.dataset, chunk.start, chunk.stop) for chunk in record.chunks) == [
            (name, start, start + 10) for name in ("dy", "tt") for start in range(0, ROWS, 10)
        ]
        assert all(chunk.took_s > 0 and chunk.host in record.hosts for chunk in record.chunks)
        assert not any(chunk.causes for chunk in record.chunks)


def test_what_failed_is_listed_and_processed_again(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path], tmp_path: Path
) -> None:
    marker = tmp_path / "broken"
    marker.touch()

    def flaky(events: Any) -> Any:
        if events.metadata["entrystart"] == 20 and marker.exists():
            raise KeyError("no such cut")
        return sums(events)

    expected = run()(fileset, sums)
    with pytest.raises(ChunkError, match=r"dy\.parquet.*no such cut.* in flaky"):
        run()({"dy": fileset["dy"]}, flaky)
    runner = run(failures="collect")
    aside = paths["tt"].rename(tmp_path / "aside")
    with pytest.warns(IncompleteWarning, match=r"Failed: .*\n.*tt\.parquet"):
        output = runner(fileset, flaky)
    assert output["events"] == {"dy": ROWS - 10}
    unknown, known = record_of(runner).failed
    assert (known.start, known.exception) == (20, "KeyError")
    assert (unknown.events, unknown.exception) == (None, "FileNotFoundError")
    aside.rename(paths["tt"])
    marker.unlink()
    assert runner.retry() == expected
    assert record_of(runner).complete


def test_bad_files_are_skipped_or_raised(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path]
) -> None:
    paths["tt"].write_bytes(b"no parquet")
    with pytest.raises(BadFileError, match=r"tt\.parquet"):
        run()(fileset, sums)
    runner = run(skipbadfiles=Exception)
    assert runner(fileset, sums)["events"] == {"dy": ROWS}
    (part,) = record_of(runner).skipped
    assert (part.dataset, part.events) == ("tt", None)
    # A file that is another one now is not taken for the one that was.
    write(paths["tt"], 2 * ROWS)
    assert runner(fileset, sums)["events"] == {"dy": ROWS, "tt": 2 * ROWS}


def test_results_are_not_stored(run: Run, fileset: dict[str, Any]) -> None:
    runner = run(results="reuse")
    with pytest.warns(UserWarning, match="parquet files are known by their names"):
        runner(fileset, sums)
    ((reason, number),) = record_of(runner).not_stored.items()
    assert "not by their content" in reason
    assert number == 8
