"""What an error says: dataset, file, entries, column, and the line of the user's code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema
from tests.io.http_origin import HttpOrigin, http_origin

from hepcache import compat
from hepcache.errors import ChunkError, OriginError, WorkerKilledError
from hepcache.formats.registry import forget_sources

pytestmark = [
    pytest.mark.filterwarnings("ignore:(Skipping bad file|Performed attempt):UserWarning"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
]

Compare = Callable[..., Any]


def write(path: Path, *, ntuple: bool = False) -> Path:
    columns = {
        "x": np.arange(20),
        "y": np.arange(20) * 0.5,
        "word": [f"word {i}" for i in range(20)],
    }
    with uproot.recreate(path, compression=uproot.ZLIB(1)) as file:
        if ntuple:
            file.mkrntuple("Events", columns)
        else:
            file.mktree("Events", columns)
    return path


def damaged(path: Path, column: str, skip: int = 9) -> Path:
    """Turn the bits of a column's only basket, or of what stands before its data."""
    with uproot.open(path) as file:
        branch = file["Events"][column]
        start = int(branch.member("fBasketSeek")[0])
        stop = start + int(branch.member("fBasketBytes")[0])
        start += branch.basket_key(0).fKeylen + skip if skip else 0
    data = bytearray(path.read_bytes())
    data[start:stop] = bytes(byte ^ 0xFF for byte in data[start:stop])
    path.write_bytes(data)
    return path


def reading_y(events: Any) -> dict[str, float]:
    return {"y": float(ak.sum(events.y))}


def reading_words(events: Any) -> dict[str, int]:
    return {"n": len(ak.materialize(events.word))}


def script_of(path: Path | str, process: Any, **options: Any) -> Callable[[ModuleType, Any], Any]:
    def script(processor: ModuleType, executor: Any) -> Any:
        executor.retries = 0
        run = processor.Runner(
            executor, **{"schema": BaseSchema, "chunksize": 100, "metadata_cache": {}, **options}
        )
        return run({"dy": {"files": {str(path): "Events"}}}, process)

    return script


def said(compare: Compare, script: Any, executors: tuple[str, ...]) -> list[str]:
    """Return what hepcache says where coffea fails too, in words without the inside of things."""
    found = []
    for _, *ours in compare(script, executors=executors).values():
        for one in ours:
            assert isinstance(one.error, ChunkError)
            found.append(str(one.error))
            assert not re.search(r"fileuuid|hepcache\.columns|\\x[0-9a-f]{2}", found[-1])
    return found


@pytest.mark.parametrize("executor", ["iterative", "cluster"])
def test_a_column_that_cannot_be_read(tmp_path: Path, compare: Compare, executor: str) -> None:
    path = damaged(write(tmp_path / "a.root"), "y")
    for text in said(compare, script_of(path, reading_y), (executor,)):
        assert text.startswith(
            f"Failed processing file: {path}, tree Events, entries 0 to 20, of dataset 'dy'. "
            "The error was: error('Error -3 while decompressing"
        )
        assert "reading column 'y'" in text
        assert re.search(rf"{__file__}:\d+ in reading_y: return .*events\.y", text)


@pytest.mark.parametrize("executor", ["iterative", "cluster"])
def test_a_cause_that_cannot_travel_leaves_its_words(
    tmp_path: Path, compare: Compare, executor: str
) -> None:
    path = damaged(write(tmp_path / "a.root"), "y", skip=0)
    for text in said(compare, script_of(path, reading_y), (executor,)):
        assert "reading column 'y'" in text
        assert str(path) in text


def test_uproots_words_name_the_file(tmp_path: Path, compare: Compare) -> None:
    path = damaged(write(tmp_path / "a.root"), "word", skip=0)
    for text in said(compare, script_of(path, reading_words), ("iterative",)):
        assert text.count(str(path)) > 1
        assert "reading column 'word'" in text


def test_a_page_that_cannot_be_read(tmp_path: Path, compare: Compare) -> None:
    path = write(tmp_path / "a.root", ntuple=True)
    with uproot.open(path) as file:
        ntuple = file["Events"]
        number = next(i for i, one in enumerate(ntuple.field_records) if one.field_name == "y")
        column = next(i for i, one in enumerate(ntuple.column_records) if one.field_id == number)
        place = ntuple.page_link_list[0][column].pages[0].locator
    data = bytearray(path.read_bytes())
    data[place.offset + 9 : place.offset + place.num_bytes] = bytes(place.num_bytes - 9)
    path.write_bytes(data)
    for text in said(compare, script_of(path, reading_y), ("iterative",)):
        assert "reading column 'y'" in text
        assert str(path) in text


class Asserts(BaseSchema):
    def __init__(self, base_form: Any, *args: Any, **options: Any) -> None:
        raise AssertionError


class LacksMuons(BaseSchema):
    def __init__(self, base_form: Any, *args: Any, **options: Any) -> None:
        raise KeyError("nMuon")


@pytest.mark.parametrize("executor", ["iterative", "cluster"])
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Asserts, "AssertionError()"),
        (LacksMuons, "KeyError('nMuon')"),
        (NanoAODSchema, 'RuntimeError("There are missing event ID fields'),
    ],
)
def test_a_schema_that_does_not_fit(
    tmp_path: Path, compare: Compare, schema: type, words: str, executor: str
) -> None:
    path = write(tmp_path / "a.root")
    for text in said(compare, script_of(path, reading_y, schema=schema), (executor,)):
        assert text.startswith(
            f"Failed creating nanoevents: {path}, tree Events, entries 0 to 20, of dataset 'dy'. "
            f"The error was: {words}"
        )
        assert re.search(r"\.py:\d+ in __init__: raise|nanoaod\.py:\d+ in ", text)


def test_the_line_is_the_innermost_of_the_users(tmp_path: Path, compare: Compare) -> None:
    def ratio(events: Any) -> float:
        return len(events) / 0

    def process(events: Any) -> Any:
        return {"ratio": ratio(events)}

    path = write(tmp_path / "a.root")
    for text in said(compare, script_of(path, process), ("iterative",)):
        assert "ZeroDivisionError('division by zero'), at " in text
        assert re.search(rf"{__file__}:\d+ in ratio: return len\(events\) / 0$", text)


def test_a_processor_without_result(tmp_path: Path, compare: Compare) -> None:
    path = write(tmp_path / "a.root")
    found = compare(script_of(path, lambda events: None), executors=("iterative",))
    for ours in found["iterative"][1:]:
        assert f"{path}, tree Events, entries 0 to 20, of dataset 'dy'" in str(ours.error)


def test_a_file_that_is_gone_when_its_chunk_comes(tmp_path: Path, compare: Compare) -> None:
    path = write(tmp_path / "a.root")

    def script(processor: ModuleType, executor: Any) -> Any:
        executor.retries = 0
        run = processor.Runner(executor, schema=BaseSchema, metadata_cache={})
        path.write_bytes(content)
        chunks = list(run.preprocess({"dy": {"files": {str(path): "Events"}}}))
        path.unlink()
        forget_sources()
        return run(chunks, reading_y)

    content = path.read_bytes()
    for text in said(compare, script, ("iterative",)):
        assert text.startswith(f"Failed to open file: {path}, tree Events, entries 0 to 20, of")


@pytest.fixture
def server() -> Any:
    with http_origin() as made:
        yield made


def test_an_origin_that_fails_is_an_error_of_the_column(
    server: HttpOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["a.root"] = write(tmp_path / "a.root").read_bytes()
    caught: list[OriginError] = []

    def process(events: Any) -> Any:
        ak.materialize(events.x)
        server.faults += [403]
        try:
            return reading_y(events)
        except OriginError as error:
            caught.append(error)
            raise

    with pytest.raises(ChunkError, match=r"reading column 'y'|column 'y', entries 0 to 20: .*403"):
        script_of(server.url("a.root"), process, processor_compression=None)(
            compat, compat.IterativeExecutor(status=False)
        )
    assert caught[0].column == "column 'y', entries 0 to 20"
    assert "column 'y', entries 0 to 20: " in str(caught[0])


def die(events: Any) -> None:
    os._exit(3)


@pytest.mark.slow
def test_a_killed_worker_is_an_error_of_the_chunk(tmp_path: Path, compare: Compare) -> None:
    path = write(tmp_path / "a.root")
    found = compare(script_of(path, die, chunksize=100), executors=("cluster",))
    for ours in found["cluster"][1:]:
        assert isinstance(ours.error, WorkerKilledError)
        assert f"Work item {path}, tree Events, entries 0 to 20, of dataset 'dy'" in str(
            ours.error
        )
        assert "fileuuid" not in str(ours.error)
