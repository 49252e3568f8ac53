from __future__ import annotations

import json
from pathlib import Path

import h5py
import pytest
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.cli.hdf5 import listed, options_of
from hepcache.errors import ConfigurationError, HepcacheError, TableFileError
from hepcache.samples.tables import TableShape, write_tables

SHAPE = TableShape(9, 4, 60, 24, 12, 0.5, 3.0, (16,))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    made = write_tables(tmp_path_factory.mktemp("tables"), shape=SHAPE, files=3, jobs=1)
    return [str(path) for path in made]


def hdf5(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["hdf5", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert not done.stderr  # a log gets no bars, nor the empty lines behind them
    return done.stdout


def test_from_files_to_parts(files: list[str], tmp_path: Path) -> None:
    out, names = tmp_path / "out.h5", tmp_path / "files.txt"
    names.write_text("# three files\n" + "\n".join(files) + "\n\n")
    said = hdf5("concat", names, "-o", out, "--key", "evt", "--jobs", 1, "--verify", "--fast")
    assert "69 datasets of 3 files" in said
    assert "equal to its 3 inputs" in said
    info = json.loads(hdf5("info", out, "--json"))
    assert (info["groups"], info["empty_groups"], info["datasets"]) == (9, 5, 69)
    assert "/rec.filled000" in hdf5("info", out) or "rec.fil" in hdf5("info", out)
    assert json.loads(hdf5("check", out, "--json"))["problems"] == {}
    assert "all right" in hdf5("check", out)
    same = json.loads(hdf5("verify", out, names, "--key", "evt", "--jobs", 1, "--json"))
    assert same == {"path": str(out), "files": 3, "problems": {}}
    ranges = json.loads(hdf5("split", out, "--parts", 4, "--json"))
    assert ranges[0]["start"] == 0
    assert ranges[-1]["stop"] == 36
    assert hdf5("split", out, "--parts", 4).startswith("part 0: events 0 to ")
    hdf5("split", out, "--parts", 4, "-o", tmp_path / "parts", "--jobs", 1)
    assert len(list((tmp_path / "parts").glob("*.h5"))) == 4
    hdf5("rechunk", out, "-o", tmp_path / "again.h5", "--chunk-rows", 8, "--jobs", 1)
    with h5py.File(tmp_path / "again.h5") as file:
        assert file["spill/evt"].chunks == (8, 1)


def test_append_add_key_and_merge(files: list[str], tmp_path: Path) -> None:
    out, linked = tmp_path / "out.h5", tmp_path / "linked.h5"
    said = hdf5("concat", *files[:2], "-o", out, "--jobs", 1, "--sort", "run,subrun", "--json")
    (written,) = json.loads(said)["files"]
    assert not [name for name in written if name.startswith("_")]
    assert written["datasets"] > 0
    hdf5("add-key", out, "--jobs", 1)
    hdf5("concat", files[2], "-o", out, "--append", "--key", "evt", "--jobs", 1)
    assert "equal" in hdf5("verify", out, *files, "--key", "evt", "--jobs", 1)
    hdf5("merge", *files, "-o", linked, "--key", "evt", "--jobs", 1)
    assert "equal" in hdf5("verify", linked, *files, "--key", "evt", "--jobs", 1)


def test_verify_knows_how_the_output_was_made(files: list[str], tmp_path: Path) -> None:
    out, backwards = tmp_path / "out.h5", files[::-1]
    made = ["-o", out, "--key", "evt", "--sort", "run,subrun", "--jobs", 1]
    assert "equal to its 3 inputs" in hdf5("concat", *backwards, *made, "--verify")
    # Keys are found in the output; the order of its inputs is not written there.
    assert "equal" in hdf5("verify", out, *files, "--jobs", 1)
    assert "equal" in hdf5("verify", out, *backwards, "--sort", "run,subrun", "--jobs", 1)
    with h5py.File(out, "r+") as file:
        file["spill/evt.seq"][3] += 1
    done = CliRunner().invoke(app, ["hdf5", "verify", str(out), *files, "--jobs", "1"])
    assert done.exit_code == 1
    assert "/spill/evt.seq" in done.stdout


def test_differences_make_the_command_fail(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    hdf5("concat", *files, "-o", out, "--key", "evt", "--jobs", 1)
    with h5py.File(out, "r+") as file:
        file["spill/evt"][3] += 1
    for command in (
        ["verify", str(out), *files, "--key", "evt", "--jobs", "1"],
        ["check", str(out)],
    ):
        done = CliRunner().invoke(app, ["hdf5", *command])
        assert done.exit_code == 1
        assert "evt" in done.stdout


def test_sample(tmp_path: Path) -> None:
    said = hdf5("sample", tmp_path, "--shape", "small-files", "--files", 1, "--jobs", 1)
    assert said.startswith(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1


def test_bad_arguments(files: list[str], tmp_path: Path) -> None:
    runner, out = CliRunner(), str(tmp_path / "out.h5")
    for arguments in (
        ["concat", *files, "-o", out, "--fast", "--small"],
        ["concat", *files, "-o", out, "--append", "--verify"],
        ["concat", *files, "-o", out, "--append", "--overwrite"],
        ["verify", out],
        ["concat", *files, "-o", out, "--compression", "rar"],
        ["concat", *files, "-o", out, "--memory", "much"],
        ["concat", *files, "-o", out, "--attributes", "all"],
    ):
        done = runner.invoke(app, ["hdf5", *arguments])
        assert done.exit_code == 2 or isinstance(done.exception, HepcacheError)
    assert not Path(out).exists()


def test_lists(tmp_path: Path) -> None:
    names = tmp_path / "a.list"
    names.write_text("x.h5\n# y.h5\n z.h5 \n")
    assert listed(["one.h5", str(names)]) == ["one.h5", "x.h5", "z.h5"]
    names.write_text("#\n")
    with pytest.raises(ConfigurationError):
        listed([str(names)])
    with pytest.raises(TableFileError):
        listed([str(tmp_path / "missing.txt")])
    names.write_bytes(b"\xff\xfe\x00\x89HDF")
    with pytest.raises(TableFileError):
        listed([str(names)])


def test_options() -> None:
    options = options_of(memory="1GiB", chunk_rows=0, sort="run, subrun", compress_from="64KiB")
    assert options.memory_bytes == 1 << 30
    assert options.chunk_rows is None
    assert options.sort == ("run", "subrun")
    assert options.compress_from == 64 << 10


def test_an_output_that_appends_make(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    for file in files:
        hdf5("concat", file, "-o", out, "--append", "--key", "evt", "--counts", "--jobs", 1)
    assert "is equal to its 3 inputs" in hdf5("verify", out, *files, "--jobs", 1)
    flat = tmp_path / "flat.h5"
    hdf5("rechunk", out, "-o", flat, "--flat", "--chunk-size", "1", "--jobs", 1)
    assert "is equal to its 3 inputs" in hdf5("verify", flat, *files, "--jobs", 1)
    assert "events of" in hdf5("info", flat)


def test_keys_of_several_datasets_in_some_groups(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "one.h5"
    path.write_bytes(Path(files[0]).read_bytes())
    key = "/spill/run,/spill/subrun,/spill/evt"
    hdf5("add-key", path, "--key", key, "--key-groups", "nothing", "--jobs", 1)
    with h5py.File(path) as file:
        assert [group for group in file if "evt.seq" in file[group]] == ["spill"]
    hdf5("add-key", path, "--key", key, "--counts", "--jobs", 1)
    assert json.loads(hdf5("check", path, "--key", key, "--json"))["problems"] == {}
    with h5py.File(path) as file:
        assert all("evt.seq_cnt" in file[group] for group in file)


def test_an_index(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "one.h5"
    path.write_bytes(Path(files[0]).read_bytes())
    with h5py.File(path, "r+") as file:
        group = next(name for name in file if name != "spill" and len(file[name]["run"]))
        file[f"{group}/cycle"] = [[3]] * len(file[group]["run"])
    hdf5("add-index", path, f"/{group}/cycle")
    with h5py.File(path) as file:
        assert set(file["spill/cycle"][()].ravel().tolist()) == {3}


@pytest.mark.parametrize(
    ("written", "nbytes"),
    [("2", 2 << 20), ("0.5", 1 << 19), (".25", 1 << 18), ("10KiB", 10 << 10), ("1 MB", 10**6)],
)
def test_the_size_of_chunks(written: str, nbytes: int) -> None:
    assert options_of(chunk_size=written).chunk_bytes == nbytes
