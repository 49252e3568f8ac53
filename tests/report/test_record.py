from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hepcache.errors import RecordError
from hepcache.report import RunRecord
from hepcache.report.files import read_json, write_atomically, write_json
from hepcache.report.machine import machine, storage, versions

GOLDEN = Path(__file__).parent / "golden" / "run-v1.json"


@pytest.mark.parametrize("name", ["run.json", "deep/run.json.gz"])
def test_a_record_survives_its_file(tmp_path, make_record, make_chunk, make_hot, name):
    record = make_record(make_chunk(), make_hot(start=100), problems={"/b.root": "truncated"})
    path = record.write(tmp_path / name)
    again = RunRecord.read(path)
    assert again.to_dict() == record.to_dict()
    assert list(again.chunks) == list(record.chunks)


def test_version_1_stays_readable(make_record, make_chunk):
    """The golden file was written by the first version of the schema; it never changes."""
    record = RunRecord.read(GOLDEN)
    golden = json.loads(GOLDEN.read_text())
    found = {name: record.to_dict()[name] for name in golden}
    for one, before in zip(found["chunks"], golden["chunks"], strict=True):
        for name in one.keys() - before.keys():
            # Counted only since a later version.
            assert one.pop(name) == 0
    assert found == golden
    assert record.chunks[0].causes == {"miss": 3}
    assert record.hosts == {"host-0": 1, "host-1": 1}


def test_a_record_knows_its_software_and_machine(make_record):
    record = RunRecord("r", "n", 0.0, 1.0, {}, [])
    assert record.versions == versions()
    now = machine()
    # Others use the volume meanwhile.
    now["storage"]["free_bytes"] = record.machine["storage"]["free_bytes"]
    assert record.machine == now


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "other"}, "expected schema 'hepcache.run', found 'other'"),
        ({"version": 99}, "expected version 1 of hepcache.run, found 99"),
        ({"chunks": 3}, "wrong type"),
        ({"hosts": ["a"]}, "wrong type"),
        ({"wall_s": "soon"}, "wrong type"),
        ({"chunks": [{"dataset": "tt"}]}, "'path' is missing"),
    ],
)
def test_what_is_no_record_is_refused_with_its_file(tmp_path, make_record, change, words):
    path = write_json(tmp_path / "bad.json", {**make_record().to_dict(), **change})
    with pytest.raises(RecordError, match=words) as caught:
        RunRecord.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\x1f\x8bnot gzip", b"\xff\xfe\x00"])
def test_what_is_not_json_is_refused(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match="JSON"):
        read_json(path)


def test_numbers_of_numpy_are_numbers_and_objects_are_not(tmp_path):
    path = write_json(tmp_path / "a.json", {"n": np.int64(3), "x": np.float32(0.5)})
    assert read_json(path) == {"n": 3, "x": 0.5}
    with pytest.raises(TypeError, match="object"):
        write_json(path, {"n": object()})
    assert read_json(path) == {"n": 3, "x": 0.5}


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a", b"old")

    def broken(*_):
        raise OSError("disk gone")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="disk gone"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["a"]


def test_the_machine_is_described(tmp_path):
    found = machine()
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 2**20
    assert found["cpu"]
    volume = storage(tmp_path / "not" / "there")
    assert 0 < volume["free_bytes"] <= volume["size_bytes"]
    assert volume["filesystem"]


def test_a_record_fits_on_a_line(make_record, make_chunk):
    assert repr(make_record(make_chunk(), name="tight")).startswith("<RunRecord 'tight': 100 ev")
