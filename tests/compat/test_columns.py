"""Every column has coffea's values, types and masks, cold and hot, however it is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import dask.config
import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.compat.contents import columns, forget_what_is_known
from tests.compat.samples import either, missing, write, write_all

from hepcache import compat

Samples = dict[str, tuple[Path, str]]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    return write_all(tmp_path_factory.mktemp("samples"))


def fileset(samples: Samples) -> dict[str, Any]:
    return {name: {"files": {str(path): tree}} for name, (path, tree) in samples.items()}


@pytest.mark.parametrize(("chunksize", "executor"), [(100, "iterative"), (24, "cluster")])
def test_every_column(
    samples: Samples, chunksize: int, executor: str, compare: Callable[..., Any]
) -> None:
    def script(processor: ModuleType, given: Any) -> Any:
        run = processor.Runner(given, schema=BaseSchema, chunksize=chunksize)
        found = run(fileset(samples), columns)
        return {name: dict(sorted(found[name].items())) for name in samples}

    theirs = compare(script, (executor,))[executor][0].value
    assert {len(chunks) for chunks in theirs.values()} == {1} if chunksize == 100 else {1, 3}
    # Nothing was left out because it can't be read, and nothing is alike by accident.
    digests = [
        digest
        for chunks in theirs.values()
        for chunk in chunks.values()
        for column, digest in chunk.items()
        if column != "."
    ]
    assert not [digest for digest in digests if isinstance(digest, str)]
    assert len({digest[1] for digest in digests}) > 100


def test_every_column_of_files_in_many_segments(samples: Samples) -> None:
    cut = coffea.Runner(coffea.IterativeExecutor(status=False), metadata_cache={}, chunksize=24)
    chunks = list(cut.preprocess(fileset(samples)))
    outputs = []
    for entries in (100_000, 30, 7):
        with dask.config.set({"hepcache.segment.entries": entries}):
            for _ in range(2):
                executor = compat.IterativeExecutor(status=False)
                outputs.append(compat.Runner(executor, schema=BaseSchema)(chunks, columns))
    executor = coffea.IterativeExecutor(status=False)
    expected = coffea.Runner(executor, schema=BaseSchema)(chunks, columns)
    assert all(output == expected for output in outputs)


@pytest.mark.filterwarnings("ignore:Skipping either")
@pytest.mark.parametrize("table", [missing, either])
def test_what_coffea_does_not_read(
    tmp_path: Path, table: Callable[[], Any], compare: Callable[..., Any]
) -> None:
    path = tmp_path / "ntuple.root"
    write(path, "Events", table(), ntuple=True)

    def script(processor: ModuleType, executor: Any) -> Any:
        return processor.Runner(executor, schema=BaseSchema)(
            {"data": {"files": {str(path): "Events"}}}, columns
        )

    compare(script, ("iterative",))


def test_uproots_values(samples: Samples) -> None:
    """What coffea gives is what uproot reads, so that both can't be wrong in one way."""
    for name, (path, tree) in samples.items():
        arrays: dict[str, Any] = {}

        def keep(events: Any, arrays: dict[str, Any] = arrays) -> dict[str, int]:
            for column in events.fields:
                arrays[column] = ak.materialize(events[column])
            return {}

        options = {"schema": BaseSchema, "processor_compression": None}
        run = compat.Runner(compat.IterativeExecutor(status=False), **options)
        run({name: {"files": {str(path): tree}}}, keep)
        with uproot.open({path: tree}) as opened:
            for column, array in arrays.items():
                expected = opened[column].array()
                if ak.is_tuple(expected):  # coffea's forms know no tuples
                    numbered = zip(expected.fields, ak.unzip(expected), strict=True)
                    expected = ak.zip(dict(numbered), depth_limit=1)
                assert ak.array_equal(
                    array, expected, equal_nan=True, dtype_exact=True, check_parameters=False
                ), f"{name}, {column}"


def test_a_process_that_starts_where_the_origin_is_gone(samples: Samples, tmp_path: Path) -> None:
    copies = {}
    for name, (path, tree) in samples.items():
        (tmp_path / path.name).write_bytes(path.read_bytes())
        copies[name] = tmp_path / path.name, tree
    run = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema, chunksize=24)
    chunks = list(run.preprocess(fileset(copies)))
    expected = run(chunks, columns)
    forget_what_is_known()
    for path, _ in copies.values():
        path.unlink()
    assert run.run(chunks, columns)["out"] == expected
