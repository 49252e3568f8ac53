"""Values are taken out of each file once, added up by dataset, and given to every chunk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor

from hepcache.errors import ConfigurationError, OriginError
from hepcache.process import Runner

pytestmark = pytest.mark.usefixtures("own_cache")

ENTRIES = 30
WEIGHTS = {"a": [1.5, 2.0], "b": [0.25], "c": [1e-300, 3.0]}
LONG_AGO_NS = 10**18


def write(path: Path, weights: list[float]) -> None:
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": "i4"}).extend({"x": np.arange(ENTRIES, dtype="i4")})
        file.mktree("Runs", {"genEventSumw": "f8"}).extend({"genEventSumw": np.array(weights)})
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


@pytest.fixture
def fileset(tmp_path: Path) -> dict[str, Any]:
    for name, weights in WEIGHTS.items():
        write(tmp_path / f"{name}.root", weights)
    return {
        "dy": {"files": [str(tmp_path / "a.root"), str(tmp_path / "b.root")]},
        "tt": {"files": [str(tmp_path / "c.root")], "metadata": {"year": 2018}},
    }


def weights(file: Any) -> dict[str, Any]:
    found = file["Runs"]["genEventSumw"].array().to_numpy()
    return {"sumw": found.sum(), "runs": found}


def total(files: list[Any]) -> dict[str, float]:
    return {"sumw": sum(values["sumw"] for values in files)}


def metadata(events: Any) -> dict[str, Any]:
    known = events.metadata
    found = {(known["dataset"], known["sumw"], known.get("year"), tuple(known.get("runs", ())))}
    return {"events": len(events), "metadata": found}


def runner() -> Runner:
    return Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=10)


def test_every_file_has_its_own_values(fileset: dict[str, Any]) -> None:
    run = runner()
    output = run(run.preprocess(fileset, treename="Events", extract=weights), metadata)
    assert output["events"] == 3 * ENTRIES
    assert output["metadata"] == {
        ("dy", 3.5, None, (1.5, 2.0)),
        ("dy", 0.25, None, (0.25,)),
        ("tt", 3.0, 2018, (1e-300, 3.0)),
    }


def test_the_values_of_a_dataset_are_added_up(fileset: dict[str, Any]) -> None:
    run = runner()
    chunks = run.preprocess(fileset, treename="Events", extract=weights, reduce=total)
    assert run(chunks, metadata)["metadata"] == {("dy", 3.75, None, ()), ("tt", 3.0, 2018, ())}
    # The next run without it has nothing of it.
    assert not [
        chunk for chunk in run.preprocess(fileset, treename="Events") if "sumw" in chunk.usermeta
    ]


def test_known_files_are_not_opened_again(fileset: dict[str, Any]) -> None:
    before = list(runner().preprocess(fileset, treename="Events", extract=weights, reduce=total))
    for dataset in fileset.values():
        for path in map(Path, dataset["files"]):
            path.write_bytes(bytes(path.stat().st_size))  # nothing can be read of it
            os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    after = list(runner().preprocess(fileset, treename="Events", extract=weights, reduce=total))
    assert [chunk.usermeta for chunk in after] == [chunk.usermeta for chunk in before]
    with pytest.raises(Exception, match=r"\.root") as caught:
        runner().preprocess(fileset, treename="Events", extract=lambda file: weights(file) | {})
    assert any("while extracting from" in note for note in caught.value.__notes__)


class Extracting:
    """A function of a file, known by a name, so that it may have side effects."""

    def __init__(self, function: Callable[[Any], dict[str, Any]]) -> None:
        self.function = function

    def __call__(self, file: Any) -> dict[str, Any]:
        return self.function(file)

    def __hepcache_fingerprint__(self) -> str:
        return self.function.__name__


def test_the_others_are_kept_where_one_file_fails(fileset: dict[str, Any]) -> None:
    opened: list[str] = []

    def second(file: Any) -> dict[str, Any]:
        opened.append(Path(file.file_path).name)
        return {"sumw": float(file["Runs"]["genEventSumw"].array()[1])}

    with pytest.raises(IndexError) as caught:
        runner().preprocess(fileset, treename="Events", extract=Extracting(second))
    assert any("b.root" in note for note in caught.value.__notes__)
    assert sorted(opened) == ["a.root", "b.root", "c.root"]
    opened.clear()
    with pytest.raises(IndexError):
        runner().preprocess(fileset, treename="Events", extract=Extracting(second))
    assert opened == ["b.root"]


def test_what_replaces_a_file_meanwhile_is_not_kept_for_it(
    fileset: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "b.root"
    old = path.read_bytes()
    write(tmp_path / "new.root", [7.0])
    swaps = [(tmp_path / "new.root").read_bytes()]

    def swapping(file: Any) -> dict[str, Any]:
        found = weights(file)
        if swaps and Path(file.file_path).name == "b.root":
            path.write_bytes(swaps.pop())
        return found

    def sums() -> dict[str, float]:
        chunks = runner().preprocess(fileset, treename="Events", extract=Extracting(swapping))
        return {Path(chunk.filename).name: chunk.usermeta["sumw"] for chunk in chunks}

    with pytest.raises(OriginError, match="written while it was being read"):
        sums()
    # The new content has its own values, and the old one none of those.
    assert sums()["b.root"] == 7.0
    path.write_bytes(old)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert sums()["b.root"] == 0.25


def test_what_can_not_be_kept_is_refused(fileset: dict[str, Any]) -> None:
    for extract in (lambda _: 5, lambda _: {"x": object()}, lambda _: {"dataset": "mine"}):
        with pytest.raises(ConfigurationError, match="extract"):
            runner().preprocess(fileset, treename="Events", extract=extract)
    with pytest.raises(ConfigurationError, match="reduce"):
        runner().preprocess(fileset, treename="Events", reduce=total)
