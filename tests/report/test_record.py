from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hepcache.errors import RecordError
from hepcache.report import RunRecord
from hepcache.report.outcomes import MissingChunk
from hepcache.report.record import read_json, write_json
from hepcache.telemetry import KernelUse, MountUse

GOLDEN = Path(__file__).parent / "golden" / "run-v1.json"

STORE = MountUse(("/mnt/store", "/mnt/<bind>"), "server:/store", True, 67_108_864, 33_554_432)

PLAIN = MountUse(("/mnt/plain data",), "server:/plain", False, 8_388_608, 0)

USE = KernelUse(("host-0", "host-1"), (STORE, PLAIN), 256, None)


@pytest.mark.parametrize("name", ["run.json", "deep/run.json.gz"])
def test_a_record_survives_its_file(tmp_path, make_record, make_chunk, make_hot, name):
    skipped = [
        MissingChunk("tt", "/b.root", "Events", None, None, "truncated"),
        MissingChunk("tt", "/a.root", "Events", 200, 300, "zlib.error"),
    ]
    record = make_record(make_chunk(), make_hot(start=100), skipped=skipped)
    path = record.write(tmp_path / name)
    again = RunRecord.read(path)
    assert list(again.skipped) == skipped
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
            assert one.pop(name) in (0, "done", {})
    assert found == golden
    assert record.chunks[0].causes == {"miss": 3}
    assert record.hosts == {"host-0": 1, "host-1": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "other"}, "expected schema 'hepcache.run', found 'other'"),
        ({"version": 99}, "expected version 1 of hepcache.run, found 99"),
        ({"chunks": 3}, "wrong type"),
        ({"hosts": ["a"]}, "wrong type"),
        ({"wall_s": "soon"}, "wrong type"),
        ({"chunks": [{"dataset": "tt"}]}, r"field 'chunks\[0\].path' is missing"),
    ],
)
def test_what_is_no_record_is_refused_with_its_file(tmp_path, make_record, change, words):
    path = write_json(tmp_path / "bad.json", {**make_record().to_dict(), **change})
    with pytest.raises(RecordError, match=words) as caught:
        RunRecord.read(path)
    assert str(path) in str(caught.value)


def test_a_record_keeps_what_kernels_did(tmp_path, make_record, make_chunk):
    record = make_record(make_chunk(), kernels=[USE])
    again = RunRecord.read(record.write(tmp_path / "run.json"))
    assert list(again.kernels) == [USE]
    assert again.to_dict() == record.to_dict()


def test_older_records_have_none(make_record, make_chunk):
    data = make_record(make_chunk()).to_dict()
    del data["kernels"]
    assert list(RunRecord.from_dict(data).kernels) == []


@pytest.mark.parametrize(
    "change", [{"hosts": 3}, {"mounts": [{"source": "s"}]}, {"reads": "many"}, {"mounts": None}]
)
def test_what_is_no_use_is_refused(make_record, make_chunk, change):
    data = make_record(make_chunk(), kernels=[USE]).to_dict()
    data["kernels"] = [{**data["kernels"][0], **change}]
    with pytest.raises(RecordError):
        RunRecord.from_dict(json.loads(json.dumps(data)))


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
