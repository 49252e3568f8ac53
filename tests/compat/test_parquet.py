"""Runs over parquet read through the cache, and give what coffea's give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pytest
from coffea import processor as coffea_processor
from coffea.nanoevents import BaseSchema, NanoAODSchema
from pyarrow import parquet as pq

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
        assert not record.uncached
    # The second time nothing is read of any file.
    assert {cause for chunk in record.chunks for cause in chunk.causes} == {"hit"}
    assert sum(chunk.origin_bytes for chunk in record.chunks) == 0


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


def test_results_are_stored_by_content(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path]
) -> None:
    runner = run(results="reuse")
    expected = runner(fileset, sums)
    assert not record_of(runner).not_stored
    assert runner(fileset, sums) == expected
    assert {chunk.outcome for chunk in record_of(runner).chunks} == {"reused"}
    # The same number of rows under the same name, of other values.
    ak.to_parquet(ak.Array({"x": np.arange(ROWS) + 1, "y": np.zeros(ROWS)}), paths["tt"])
    found = runner(fileset, sums)
    assert found["sum"] == {"dy": expected["sum"]["dy"], "tt": ROWS * (ROWS + 1) / 2}


def test_what_was_replaced_is_never_taken_from_the_cache(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path]
) -> None:
    runner = run()
    before = runner(fileset, sums)
    ak.to_parquet(ak.Array({"x": np.arange(ROWS) + 1, "y": np.zeros(ROWS)}), paths["tt"])
    after = runner(fileset, sums)
    assert after["sum"] == {"dy": before["sum"]["dy"], "tt": ROWS * (ROWS + 1) / 2}
    causes = {
        (chunk.dataset, cause) for chunk in record_of(runner).chunks for cause in chunk.causes
    }
    assert ("tt", "stale") in causes
    assert {cause for dataset, cause in causes if dataset == "dy"} == {"hit"}


def test_hot_chunks_do_not_open_the_file(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = run()
    chunks = list(runner.preprocess(fileset))
    expected = runner(chunks, sums)
    for path in paths.values():
        path.unlink()
    assert runner(chunks, sums) == expected


def test_other_names_are_read_by_coffea(run: Run, tmp_path: Path) -> None:
    known, other = write(tmp_path / "a.parquet"), write(tmp_path / "b.skim")
    fileset = {"dy": {"files": [str(known), str(other)], "metadata": {"kind": "dy"}}}
    runner = run(results="reuse")
    with pytest.warns(UserWarning, match=r"only parquet files named \*.parquet"):
        found = runner(fileset, sums, treename="Events")
    assert found["events"] == {"dy": 2 * ROWS}
    record = record_of(runner)
    ((reason, number),) = record.uncached.items()
    assert "named *.parquet" in reason
    assert number == ROWS / 10
    assert [bool(chunk.causes) for chunk in record.chunks].count(True) == ROWS / 10


def test_what_coffea_reads_in_its_own_way_is_left_to_it(
    run: Run, tmp_path: Path, compare: Callable[..., Any]
) -> None:
    # A form that another program has noted, of another type than the file's.
    form = {"class": "NumpyArray", "primitive": "int32", "parameters": {}, "form_key": None}
    noted = pa.field(
        "x", pa.int32(), metadata={"form": json.dumps({**form, "primitive": "uint32"})}
    )
    path = tmp_path / "noted.parquet"
    x = pa.array(np.arange(ROWS, dtype=np.int32) - 5)
    pq.write_table(
        pa.Table.from_arrays([x, x], schema=pa.schema([noted, ("y", pa.int32())])), path
    )
    fileset = {"dy": {"files": [str(path)], "treename": "Events", "metadata": {"kind": "dy"}}}
    runner = run()
    for _ in range(2):
        found = runner(fileset, largest)
        record = record_of(runner)
        assert record.uncached == {"coffea reads column x in a way of its own": ROWS / 10}
        assert not any(chunk.causes for chunk in record.chunks)
    assert found == plain_coffea(fileset, largest) == {"largest": {2**32 - 1}}


def largest(events: Any) -> Any:
    return {"largest": {int(ak.max(events.x))} if events.metadata["entrystart"] == 0 else set()}


def plain_coffea(fileset: Any, function: Any, **options: Any) -> Any:
    executor = coffea_processor.IterativeExecutor(status=False)
    settings = {"schema": BaseSchema, "chunksize": 10, "format": "parquet", **options}
    return coffea_processor.Runner(executor, metadata_cache={}, **settings)(fileset, function)


def test_a_column_that_coffea_has_no_events_for_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "text.parquet"
    ak.to_parquet(ak.Array({"x": np.arange(4), "label": ["a", "b", "c", "d"]}), path)
    fileset = {"dy": {"files": [str(path)], "treename": "Events", "metadata": {"kind": "dy"}}}
    with pytest.raises(Exception, match="Failed creating nanoevents"):
        plain_coffea(fileset, sums)
    with pytest.raises(
        ChunkError, match=r"Failed creating nanoevents: .*text\.parquet.*label \(.*string"
    ):
        run()(fileset, sums)
    # What coffea raised is among the causes, so that skipbadfiles finds it.
    with pytest.raises(ChunkError) as raised:
        compat.Runner(compat.IterativeExecutor(), schema=BaseSchema, format="parquet")(
            fileset, sums
        )
    assert isinstance(raised.value.__cause__.__cause__, AttributeError)


def test_a_damaged_column_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    rng = np.random.default_rng(1)
    table = pa.table({name: rng.normal(size=ROWS * 100) for name in ("x", "y")})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False)
    place = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data = bytearray(path.read_bytes())
    data[place.data_page_offset + place.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    fileset = {"dy": {"files": [str(path)], "treename": "Events", "metadata": {"kind": "dy"}}}
    with pytest.raises(ChunkError, match=r"damaged\.parquet.*CRC.*column 'y'"):
        run()(fileset, sums)
    runner = run(skipbadfiles=OSError)
    with pytest.raises(Exception, match=r"no chunk was processed|all"):
        runner(fileset, sums)


def test_truncated_files_are_bad(
    run: Run, fileset: dict[str, Any], paths: dict[str, Path]
) -> None:
    run()(fileset, sums)
    paths["tt"].write_bytes(paths["tt"].read_bytes()[:-20])
    with pytest.raises(BadFileError, match=r"tt\.parquet .*: truncated"):
        run()(fileset, sums)


NANO = ("nJet", "Jet_pt", "Jet_eta", "Jet_phi", "Jet_mass", "MET_pt", "MET_phi")


@pytest.mark.filterwarnings("ignore:Missing cross-reference:RuntimeWarning")
def test_nanoaod_is_coffeas(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 5, ROWS)
    jets = {
        name: ak.unflatten(rng.random(counts.sum()).astype(np.float32), counts)
        for name in NANO[1:5]
    }
    path = tmp_path / "nano.parquet"
    numbers = {name: np.arange(ROWS) for name in ("run", "luminosityBlock", "event")}
    events = {"nJet": counts.astype(np.uint32), **numbers, **jets, "MET_pt": rng.random(ROWS)}
    ak.to_parquet(ak.Array({**events, "MET_phi": rng.random(ROWS)}), path, row_group_size=16)
    fileset = {"tt": {"files": {str(path): None}}}
    expected = plain_coffea(fileset, contents, schema=NanoAODSchema)
    runner = compat.Runner(
        compat.IterativeExecutor(status=False),
        schema=NanoAODSchema,
        chunksize=10,
        format="parquet",
    )
    for _ in range(2):
        assert runner(fileset, contents) == expected
    assert all(set(chunk.causes) == {"hit"} for chunk in record_of(runner).chunks)


def contents(events: Any) -> Any:
    own = {**events.metadata}
    start, stop = own.pop("entrystart"), own.pop("entrystop")
    jets = events.Jet[events.Jet.pt > 0.3]
    found = [
        ak.to_list((jets.pt, jets.eta, (jets + jets).mass)),
        ak.to_list((events.MET.pt, ak.num(events.Jet), ak.firsts(events.Jet).phi)),
        str(events.Jet.type.content),
    ]
    return {"found": {repr((start, stop, found))}, "metadata": {repr(own)}}


def types(events: Any) -> Any:
    """Return what every column is in a chunk, or the error of what it isn't."""
    found = {}
    for name in events.fields:
        array = ak.materialize(events[name])
        found[name] = repr((ak.to_list(array), str(array.type), array.layout.form.to_dict()))
    return {repr(events.metadata["entrystart"]): {repr(found)}}


@pytest.mark.parametrize(
    ("codec", "groups"), [("none", 16), ("snappy", 1000), ("zstd", 16), ("gzip", 7), ("lz4", 16)]
)
def test_all_that_coffea_reads_is_the_same(tmp_path: Path, codec: str, groups: int) -> None:
    path = tmp_path / "all.parquet"
    options = {"compression": codec, "row_group_size": groups}
    pq.write_table(pa.table(readable()), path, use_dictionary=groups > 100, **options)
    fileset = {"dy": {"files": {str(path): None}}}
    expected = plain_coffea(fileset, types)
    runner = compat.Runner(
        compat.IterativeExecutor(status=False), schema=BaseSchema, chunksize=10, format="parquet"
    )
    for _ in range(2):
        assert runner(fileset, types) == expected


def readable() -> dict[str, pa.Array]:
    x = np.arange(ROWS)
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?")
    found = {kind: pa.array((x % 100).astype(kind)) for kind in kinds}
    lists = [[1, 2, 3][: number % 4] for number in x]
    for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float32(), pa.float64()):
        found[f"list {kind}"] = pa.array(lists, pa.list_(kind))
        found[f"large {kind}"] = pa.array(lists, pa.large_list(kind))
    found["flags"] = pa.array([[bool(n % 2) for n in row] for row in lists], pa.list_(pa.bool_()))
    found["codes"] = pa.array(x % 3).dictionary_encode()
    found["no floats"] = pa.array([None if n % 3 else float(n) for n in x], pa.float32())
    found["no lists"] = pa.array([None if n % 3 else lists[n] for n in x], pa.list_(pa.int32()))
    found["no items"] = pa.array([[1.5, None] for n in x], pa.list_(pa.float32()))
    found["never"] = pa.array([None] * ROWS, pa.float64())
    found["a.b"] = pa.array(x)
    return found


def test_an_empty_file_is_one_chunk(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "empty.parquet", 0)
    fileset = {"dy": {"files": [str(path)], "treename": "Events", "metadata": {"kind": "dy"}}}
    assert run()(fileset, sums) == plain_coffea(fileset, counted) | {"sum": {"dy": 0.0}}


def counted(events: Any) -> Any:
    return {"events": {events.metadata["kind"]: len(events)}}


@pytest.mark.parametrize("lists", [False, True])
def test_missing_integers_are_refused_where_coffea_invents_some(
    tmp_path: Path, lists: bool
) -> None:
    values = [[None if n == 25 else n] if lists else None if n == 25 else n for n in range(ROWS)]
    kind = pa.list_(pa.int32()) if lists else pa.int32()
    path = tmp_path / "missing.parquet"
    pq.write_table(pa.table({"x": pa.array(values, kind)}), path)
    fileset = {"dy": {"files": {str(path): None}}}
    assert ak.sum(ak.from_parquet(path).x) == sum(range(ROWS)) - 25
    invented = plain_coffea(fileset, summed)["20"] - plain_coffea(fileset, summed)["10"]
    assert invented != 100 - 25
    runner = compat.Runner(
        compat.IterativeExecutor(status=False),
        schema=BaseSchema,
        chunksize=10,
        format="parquet",
        failures="collect",
    )
    for _ in range(2):
        # Chunks in which none are missing are as they should be.
        assert runner(fileset, summed) == {"0": 45, "10": 145, "30": 345}
        (failed,) = record_of(runner).failed
        assert (failed.start, failed.exception) == (20, "ColumnError")
        assert "column 'x'" in failed.message
        assert "int32 stands for these" in failed.message


def summed(events: Any) -> Any:
    return {str(events.metadata["entrystart"]): int(ak.sum(events.x))}
