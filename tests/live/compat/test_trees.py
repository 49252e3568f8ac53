"""Every column of every tree in scikit-hep-testdata: coffea's, uproot's and hepcache's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.compat.conftest import outcome
from tests.compat.contents import columns, forget_what_is_known, trees

import hepcache
from hepcache import compat

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of uproot and coffea, about old files
    pytest.mark.timeout(900),
]

# An archive's file that ends after its first bytes.
DAMAGED = {"uproot-issue70.root"}

# Files whose numbers of entries are no whole numbers for uproot: coffea reads no chunk of them.
REFUSED = {"uproot-from-geant4.root"}

BESIDES = {
    ("uproot-small-dy-nooffsets.root", "Jet_pt"): "uproot-small-dy-withoffsets.root",
    ("uproot-small-dy-nooffsets.root", "Jet_jetId"): "uproot-small-dy-withoffsets.root",
}
"""Columns that hepcache reads and uproot does not, and a file that has the same values.

The counter's baskets end elsewhere than the column's; uproot wants them to agree.
"""

BEYOND = {*BESIDES, ("uproot-small-evnt-tree-nosplit.root", "evt")}
"""Columns that hepcache reads and coffea does not."""


@contextmanager
def as_a_process_that_starts() -> Iterator[None]:
    """Let uproot forget the classes of other files, which it takes for this file's by name."""
    others = {
        name: kind for name, kind in uproot.classes.items() if kind.__module__ == "uproot.dynamic"
    }
    for name in others:
        del uproot.classes[name]
    yield
    uproot.classes.update(others)


def script(path: Path, tree: str, function: Any) -> Any:
    def run(processor: ModuleType, executor: Any) -> Any:
        # One chunk each; hepcache cuts larger files at segments, too.
        options = {"schema": BaseSchema, "chunksize": 10**7, "processor_compression": None}
        work = processor.Runner(executor, **options)
        return work({"data": {"files": {str(path): tree}}}, function)

    return run


def local(processor: ModuleType) -> Any:
    return processor.IterativeExecutor(status=False, retries=0)


def chunk(found: Any) -> dict[str, Any]:
    (columns,) = found.value["data"].values()
    return dict(columns)


def differences(path: Path, tree: str) -> Iterator[str]:
    """Compare one tree, cold, hot, and hot as a process that starts."""
    where = f"{path.name}, {tree}"
    work = script(path, tree, columns)
    theirs = outcome(work, coffea, local(coffea))
    beyond: set[str] = set()
    for when in ("cold", "hot", "hot in another process"):
        if when == "hot in another process":
            forget_what_is_known()
        ours = outcome(work, compat, local(compat))
        if ours.error is not None:
            if not isinstance(ours.error, type(theirs.error)):
                yield f"{where}, {when}: {ours.error!r} where coffea has {theirs!r}"
            continue
        found = chunk(ours)
        # coffea fails with the tree, or with some columns.
        known = {} if theirs.error is not None else chunk(theirs)
        beyond |= {
            column
            for column, content in found.items()
            if column != "." and not isinstance(content, str)
            if path.name in REFUSED or (path.name, column) in BEYOND
        }
        for column in sorted(set(known) - beyond):
            if found.get(column) != known[column]:
                what = f"{found.get(column)} where coffea has {known[column]}"
                yield f"{where}, {column}, {when}: {what}"
    yield from (f"{where}, {column}: {what}" for column, what in uproots(path, tree, beyond))


def uproots(path: Path, tree: str, columns: set[str]) -> Iterator[tuple[str, str]]:
    """Compare what coffea does not read with uproot."""
    arrays: dict[str, Any] = {}

    def keep(events: Any) -> dict[str, int]:
        arrays.update({column: ak.materialize(events[column]) for column in columns})
        return {}

    outcome(script(path, tree, keep), compat, local(compat))
    for column in sorted(columns):
        source = path.with_name(BESIDES.get((path.name, column), path.name))
        with uproot.open({source: tree}) as opened:
            try:
                expected = opened[column].array()
            except Exception as error:
                yield column, f"hepcache reads it and uproot does not: {error!r}"
                continue
        if ak.to_list(arrays[column]) != ak.to_list(expected):
            yield column, f"not uproot's values in {source.name}"


def test_every_column_of_every_tree(testdata: Path) -> None:
    found: list[str] = []
    count = 0
    for path in sorted(testdata.glob("*.root")):
        if path.name in DAMAGED:
            continue
        for tree in trees(path):
            found.extend(differences(path, tree))
            count += 1
    assert not found, "\n".join(found)
    assert count == 92


def test_all_trees_at_once_in_workers_with_four_threads(testdata: Path, tmp_path: Path) -> None:
    """Every tree that coffea reads is a dataset of one run."""
    fileset = {
        f"{path.name}/{tree}": {"files": {str(path): tree}}
        for path in sorted(testdata.glob("*.root"))
        if path.name not in DAMAGED | REFUSED
        for tree in trees(path)
    }
    options = {"schema": BaseSchema, "chunksize": 10**7}
    expected: dict[str, Any] = {}
    for dataset, files in fileset.items():
        with as_a_process_that_starts():
            run = coffea.Runner(local(coffea), **options)
            expected |= run({dataset: files}, columns)
    assert len(expected) == 88
    with (
        hepcache.LocalCluster(
            hosts=1, workers_per_host=2, threads_per_worker=4, cache_directory=tmp_path
        ) as cluster,
        cluster.client() as client,
    ):
        run = hepcache.Runner(hepcache.Executor(client=client, status=False), **options)
        for _ in range(2):
            found = run(fileset, columns)
            assert set(found) == set(expected)
            for dataset, chunks in expected.items():
                for column, content in chunks[0].items():
                    if (dataset.partition("/")[0], column) not in BEYOND:
                        assert found[dataset][0][column] == content, f"{dataset}, {column}"
