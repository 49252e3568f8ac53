from __future__ import annotations

from hepcache.report import RunRecord
from hepcache.report.machine import machine, storage, versions


def test_the_machine_is_described(tmp_path):
    found = machine()
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 2**20
    assert found["cpu"]
    volume = storage(tmp_path / "not" / "there")
    assert 0 < volume["free_bytes"] <= volume["size_bytes"]
    assert volume["filesystem"]


def test_a_record_knows_its_software_and_machine(make_record):
    record = RunRecord("r", "n", 0.0, 1.0, {}, [])
    assert record.versions == versions()
    now = machine()
    # Others use the volume meanwhile.
    now["storage"]["free_bytes"] = record.machine["storage"]["free_bytes"]
    assert record.machine == now
