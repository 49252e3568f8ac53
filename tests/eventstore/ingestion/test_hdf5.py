"""Files of tables in, the same rows out, event by event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.eventstore import Store, connect, ingest
from hepcache.eventstore.ingestion.hdf5 import HDF5Events, describe_classes
from hepcache.hdf5.inputs import opened_tables

LARGE = 2**64 - 2
Tables = dict[str, dict[str, Any]]


def tables(seed: int = 1, subrun: int = 7) -> Tables:
    """Return two classes whose rows are in no order, an empty one, and one of names."""
    rng = np.random.default_rng(seed)
    events = np.array([3, 9, 5, LARGE, 12], "u8")

    def of(rows: int, **columns: Any) -> dict[str, Any]:
        where = {"run": np.full(rows, LARGE, "u8"), "subrun": np.full(rows, subrun, "u4")}
        return {**where, "evt": rng.choice(events, rows), **columns}

    values = rng.normal(size=30).astype("f4")
    values[::7] = np.nan
    return {
        "spill": {
            "run": np.full(5, LARGE, "u8"), "subrun": np.full(5, subrun, "u4"), "evt": events,
        },
        "rec.slc": of(
            30, nhit=rng.integers(0, 99, 30), x=values, subevt=np.arange(30, dtype="u2")
        ),
        "rec.map": of(8, pixels=rng.integers(0, 9, (8, 4)).astype("u1")),
        "rec.empty": of(0, energy=np.zeros(0, "f8")),
        "rec.name": of(4, name=np.array(["a", "", "neutrino", "ä"], dtype=h5py.string_dtype())),
    }  # fmt: skip


def write(path: Path, groups: Tables) -> Path:
    with h5py.File(path, "w") as file:
        for group, columns in groups.items():
            for name, values in columns.items():
                values = np.asarray(values)
                shaped = values[:, None] if values.ndim == 1 else values
                file.create_dataset(f"{group}/{name}", data=shaped)
    return path


def expected(groups: Tables, group: str, event: int) -> list[dict[str, Any]]:
    columns = groups[group]
    rows = [row for row, one in enumerate(columns["evt"].tolist()) if one == event]
    names = [name for name in columns if name not in ("run", "subrun", "evt")]
    return [{name: np.asarray(columns[name]).tolist()[row] for name in names} for row in rows]


def plain(value: Any) -> Any:
    """Replace nan by a text, so that values can be compared."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return "nan" if value != value else value


def check(store: Store, dataset: str, groups: Tables, subrun: int = 7) -> None:
    there = store[dataset][LARGE][subrun]
    assert list(there) == [3, 5, 9, 12, LARGE]
    for group in ("rec.slc", "rec.map", "rec.name"):
        for event in there:
            rows = expected(groups, group, event)
            if not rows:
                assert group not in [label for label, _ in there[event]]
            else:
                assert plain(there[event][group].tolist()) == plain(rows)


@pytest.fixture(params=["mem", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = "mem://?shards=2" if request.param == "mem" else f"file://{tmp_path}/store?shards=2"
    with connect(url) as made:
        yield made


def test_every_row_is_found_with_its_event(store: Store, tmp_path: Path) -> None:
    groups = tables()
    [done] = ingest(store, "nova/a", [write(tmp_path / "a.h5", groups)])
    assert (done.events, done.subruns, done.rows, done.skipped_events) == (5, 1, 42, 0)
    check(store, "nova/a", groups)


def test_ingesting_again_changes_nothing_under_whatever_name(store: Store, tmp_path: Path) -> None:
    groups = tables()
    path = write(tmp_path / "a.h5", groups)
    ingest(store, "nova", [path])
    path.rename(tmp_path / "b.h5")
    [done] = ingest(store, "nova", [tmp_path / "b.h5"])
    assert (done.skipped_events, done.rows) == (5, 0)
    check(store, "nova", groups)


def test_a_source_of_a_virtual_file_that_changed_is_no_file_that_is_there(
    store: Store, tmp_path: Path
) -> None:
    groups = {"rec.slc": tables()["rec.slc"]}
    source, path = write(tmp_path / "source.h5", groups), tmp_path / "virtual.h5"
    with h5py.File(source) as file, h5py.File(path, "w") as virtual:
        for name, column in file["rec.slc"].items():
            layout = h5py.VirtualLayout(column.shape, column.dtype)
            layout[:] = h5py.VirtualSource(column)
            virtual.create_virtual_dataset(f"rec.slc/{name}", layout)
    ingest(store, "d", [path])
    [again] = ingest(store, "d", [path])
    assert (again.skipped_events, again.rows) == (again.events, 0)
    groups["rec.slc"]["nhit"] = groups["rec.slc"]["nhit"] + 1
    write(source, groups)
    # The virtual file is what it was, but its rows are others.
    with pytest.raises(TableMismatchError, match="already, from another file"):
        ingest(store, "d", [path])


def test_an_interrupted_ingestion_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tables(1, subrun=7), tables(2, subrun=8)
    both = {
        group: {
            name: np.concatenate([columns[name], second[group][name]])
            for name in columns
        }
        for group, columns in first.items()
    }  # fmt: skip
    path = write(tmp_path / "a.h5", both)
    applied: list[bytes] = []
    apply = Store.apply

    def fail_at_the_second(self: Store, container: bytes, operations: Any) -> None:
        if len(operations) > 1:
            applied.append(container)
            if len(applied) == 2:
                raise OSError("no space left")
        apply(self, container, operations)

    monkeypatch.setattr(Store, "apply", fail_at_the_second)
    with pytest.raises(OSError, match="no space left"):
        ingest(store, "nova", [path])
    monkeypatch.undo()
    assert len(store["nova"][LARGE][7]) == 5
    assert len(store["nova"][LARGE][8]) == 0
    [done] = ingest(store, "nova", [path])
    assert (done.events, done.skipped_events) == (10, 5)
    check(store, "nova", first, 7)
    check(store, "nova", second, 8)


def test_what_was_removed_comes_again(store: Store, tmp_path: Path) -> None:
    groups = tables()
    path = write(tmp_path / "a.h5", groups)
    ingest(store, "nova", [path])
    del store["nova"][LARGE][7][9]
    ingest(store, "nova", [path])
    check(store, "nova", groups)


def test_an_event_of_another_file_is_an_error_that_names_file_group_and_row(
    store: Store, tmp_path: Path
) -> None:
    one = write(tmp_path / "a.h5", tables(1))
    other = tables(2)
    ingest(store, "nova", [one])
    with pytest.raises(TableMismatchError, match=r"b.h5: group rec.*, row \d+") as caught:
        ingest(store, "nova", [write(tmp_path / "b.h5", other)])
    assert "event 3 of run" in str(caught.value)
    check(store, "nova", tables(1))


def test_portions_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [tables(number, subrun=number) for number in range(5)]
    groups = {
        group: {name: np.concatenate([one[group][name] for one in parts]) for name in columns}
        for group, columns in parts[0].items()
    }
    path = write(tmp_path / "a.h5", groups)
    monkeypatch.setattr("hepcache.eventstore.ingestion.hdf5._PORTION_BYTES", 500)
    with connect("mem://") as store:
        ingest(store, "nova", [path])
        for number, part in enumerate(parts):
            check(store, "nova", part, number)


def change(groups: Tables, group: str, **columns: Any) -> Tables:
    changed = {**groups[group], **columns}
    return {**groups, group: {name: one for name, one in changed.items() if one is not None}}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda t: change(t, "rec.slc", evt=None),
            r"group rec.slc: it lacks the index column evt",
        ),
        (
            lambda t: change(t, "rec.slc", run=None, subrun=None),
            r"group rec.slc: it lacks the index columns run, subrun",
        ),
        (
            lambda t: change(t, "rec.slc", nhit=np.arange(28)),
            r"group rec.slc: evt has 30 rows, but nhit has 28: row 28 is incomplete",
        ),
        (
            lambda t: change(t, "rec.map", evt=np.array([1, 2, -3, 4, 5, 6, 7, 8])),
            r"group rec.map, row 2: evt is -3",
        ),
        (
            lambda t: change(t, "rec.map", evt=np.linspace(0, 1, 8)),
            r"index column evt holds float64, not whole numbers",
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_group_and_row(
    tmp_path: Path, spoil: Callable[[Tables], Tables], message: str
) -> None:
    path = write(tmp_path / "bad.h5", spoil(tables()))
    with connect("mem://") as store, pytest.raises(TableMismatchError, match=message) as caught:
        ingest(store, "nova", [path])
    assert str(path) in str(caught.value)


def test_unlike_files_and_bad_ones_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = write(tmp_path / "a.h5", tables(1))
    unlike = change(tables(2), "rec.slc", x=np.zeros(30, "f8"))
    with connect("mem://") as store:
        with pytest.raises(TableMismatchError, match=r"b.h5: group rec.slc: differs from .* in x"):
            ingest(store, "nova", [good, write(tmp_path / "b.h5", unlike)])
        (tmp_path / "c.h5").write_bytes(b"no HDF5 at all")
        with pytest.raises(TableFileError, match=r"c\.h5"):
            ingest(store, "nova", [good, tmp_path / "c.h5"])
        assert "nova" not in store


def test_the_description_of_a_real_file(shared_data: Path) -> None:
    found = describe_classes(shared_data / "hdf5" / "sample_r11981_s06.h5")
    by_name = {one.name: one for one in found.classes}
    maps = by_name["rec.training.cvnmaps"]
    assert (maps.rows, maps.sub_event) == (2455, ("subevt",))
    assert {one.name: (one.type, one.shape) for one in maps.columns}["cvnmap"] == ("uint8", (16,))


def test_real_files_are_ingested_whole(shared_data: Path) -> None:
    paths = sorted((shared_data / "hdf5").glob("*.h5"))
    with connect("mem://") as store:
        done = ingest(store, "nova", paths)
        for path, one in zip(paths, done, strict=True):
            with h5py.File(path) as file, opened_tables(str(path)) as opened:
                events = HDF5Events(opened, describe_classes(path))
                rows = 0
                for run, subrun, _, read in events.subruns():
                    there = store["nova"][run][subrun]
                    for label, table in read().items():
                        again = there.read(label)
                        assert again.events.tolist() == table.events.tolist()
                        for name, column in table.columns.items():
                            np.testing.assert_array_equal(again.columns[name], column)
                        rows += len(next(iter(table.columns.values())))
                filled = [g for g in file if g != "spill"]
                assert rows == one.rows == sum(len(file[g]["evt"]) for g in filled)
