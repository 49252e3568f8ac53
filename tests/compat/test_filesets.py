"""Whatever a fileset may be for coffea, it may be here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import distributed
import numpy as np
import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.compat.conftest import ordered

from hepcache import compat
from hepcache.errors import BadFilesetError, IncompleteWarning

EVENTS = 25


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a few events with one list and one number each."""
    numbers = np.random.default_rng(1)
    path = tmp_path / "data.root"
    events = {
        "pt": ak.unflatten(numbers.random(2 * EVENTS), np.arange(EVENTS) % 5),
        "run": np.arange(EVENTS),
    }
    with uproot.recreate(path) as root:
        root.mktree("Events", {"pt": events["pt"].type.content, "run": np.int64})
        root["Events"].extend(events)
    return path


def sums(events: Any) -> dict[str, Any]:
    """Return what depends on every event, by the chunk's dataset."""
    name = Path(events.metadata["filename"]).name
    found = {"events": len(events), "pt": int(ak.sum(events.pt * 2**20)), name: 1}
    return {events.metadata["dataset"]: found}


def test_a_file_that_is_there_several_times(
    file: Path, compare: Callable[..., Any], hepcache_client: distributed.Client
) -> None:
    copy = file.with_name("copy.root")
    shutil.copy(file, copy)
    files = {
        "nominal": [str(file)],
        "variation": [str(file)],
        "twice": [str(file), str(file)],
        "copied": [str(file), str(copy)],
    }

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=BaseSchema, chunksize=10, savemetrics=True)
        output, metrics = run(files, sums, treename="Events")
        return ordered(output) | {"entries": metrics["entries"]}

    theirs, *_ = compare(script)["cluster"]
    assert theirs.value["twice"]["events"] == 2 * EVENTS
    executor = compat.DaskExecutor(client=hepcache_client, status=False)
    assert script(coffea, executor) == theirs.value


@pytest.mark.parametrize("form", ["list", "dict"])
def test_paths_as_objects(form: str, file: Path, compare: Callable[..., Any]) -> None:
    files: Any = [file] if form == "list" else {"files": {file: "Events"}}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=BaseSchema, chunksize=10)
        treename = "Events" if form == "list" else None
        output = run.run({"a": files}, names, treename=treename)
        return output["out"], sorted({str(item.filename) for item in output["processed"]})

    outcomes = compare(script)
    assert outcomes["iterative"][0].value == ({"PosixPath": EVENTS}, [str(file)])


def names(events: Any) -> dict[str, int]:
    return {type(events.metadata["filename"]).__name__: len(events)}


def test_a_fileset_in_a_file(tmp_path: Path, file: Path) -> None:
    described = tmp_path / "fileset.json"
    described.write_text(json.dumps({"a": [str(file)]}))
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema)
    for given in (str(described), described):
        assert run(given, sums, treename="Events")["a"]["events"] == EVENTS
        assert len(list(run.preprocess(given, treename="Events"))) == 1


@pytest.mark.parametrize(
    "fileset",
    [
        lambda file: [str(file)],
        lambda file: (item for item in ()),
        lambda file: {},
        lambda file: {"a": (str(file),)},
        lambda file: {"a": []},
        lambda file: str(file.with_name("none.json")),
    ],
    ids=["a list", "an empty generator", "no datasets", "a tuple", "no files", "no such file"],
)
def test_what_is_no_fileset(
    fileset: Callable[[Path], Any], file: Path, compare: Callable[..., Any]
) -> None:
    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=BaseSchema)
        return run(fileset(file), sums, treename="Events")

    theirs, *ours = compare(script, ("iterative",))["iterative"]
    assert theirs.error is not None
    for outcome in ours:
        assert str(theirs.error) in str(outcome.error)


@pytest.mark.parametrize("fileset", [[], (), iter([]), None, 3])
def test_what_coffea_says_nothing_useful_about(fileset: Any) -> None:
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema)
    with pytest.raises(ValueError, match=r"No chunks survived|Expected fileset to be a mapping"):
        run(fileset, sums)


def test_a_list_of_files_is_told_what_to_do(file: Path) -> None:
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema)
    with pytest.raises(BadFilesetError, match="load_fileset"):
        run([str(file)], sums)


def test_chunks_that_were_cut_before(file: Path, compare: Callable[..., Any]) -> None:
    files = {"a": [str(file)], "b": [file]}

    def script(processor: ModuleType, executor: Any) -> Any:
        cutting = processor.Runner(processor.IterativeExecutor(), schema=BaseSchema, chunksize=10)
        run = processor.Runner(executor, schema=BaseSchema)
        chunks = list(cutting.preprocess(files, treename="Events"))
        generated = cutting.preprocess(files, treename="Events")
        theirs = list(
            coffea.Runner(coffea.IterativeExecutor(), schema=BaseSchema).preprocess(
                files, treename="Events"
            )
        )
        return [ordered(run(one, sums)) for one in (chunks, generated, theirs, 2 * chunks)]

    outcomes = compare(script)
    assert outcomes["cluster"][1].value[3]["b"]["events"] == 2 * EVENTS


def test_chunks_outlive_the_next_fileset(file: Path) -> None:
    other = file.with_name("other.root")
    shutil.copy(file, other)
    run = compat.Runner(
        compat.IterativeExecutor(status=False), schema=BaseSchema, skipbadfiles=True
    )
    first = run.preprocess({"a": [str(file), str(other)]}, treename="Events")
    other.unlink()
    with pytest.warns(IncompleteWarning, match="other.root"):
        second = run.preprocess({"a": [str(file), str(other)]}, treename="Events")
    assert [len(list(chunks)) for chunks in (first, second)] == [2, 1]


def listed(events: Any) -> dict[str, Any]:
    """Return accumulators that have an order."""
    first = f"{events.metadata['dataset']} {events.metadata['entrystart']}"
    return {"list": [first], "runs": events.run.to_list(), "dict": {first: 1}}


def test_lists_and_dicts_keep_coffeas_order(file: Path, compare: Callable[..., Any]) -> None:
    other = file.with_name("other.root")
    shutil.copy(file, other)
    files = {"b": [str(other), str(file)], "a": [str(file)]}

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=BaseSchema, chunksize=4)
        output = run(files, listed, treename="Events")
        if isinstance(executor, coffea.IterativeExecutor):
            return output
        # Elsewhere coffea adds up in the order in which chunks end, or its own.
        return ordered({name: sorted(output[name]) for name in output})

    outcomes = compare(script)
    assert outcomes["iterative"][1].value["runs"] == [*range(EVENTS)] * 3


def preloaded(events: Any) -> dict[str, Any]:
    arrays = events.attrs["@events_factory"]._mapping.preloaded_arrays
    found = None if arrays is None else sorted(arrays)
    return {events.metadata["dataset"]: [found], "sum": int(ak.sum(events.pt * 2**20))}


def test_preloaded_arrays(file: Path, compare: Callable[..., Any]) -> None:
    files = {
        "none": {"files": [str(file)]},
        "nothing": {"files": [str(file)], "preload": []},
        "pt": {"files": [str(file)], "preload": ["pt", "no such column"]},
    }

    def script(processor: ModuleType, executor: Any) -> Any:
        run = processor.Runner(executor, schema=BaseSchema, chunksize=10)
        return ordered(run(files, preloaded, treename="Events"))

    outcomes = compare(script)
    assert outcomes["iterative"][0].value["pt"] == [["pt"], ["pt"]]
