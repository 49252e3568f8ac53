from __future__ import annotations

import json

import pytest

from hepcache.errors import RecordError
from hepcache.report import CycleReport, RunRecord
from hepcache.report.kernel import KernelUse
from hepcache.telemetry import MountUse

STORE = MountUse(("/mnt/store", "/mnt/<bind>"), "server:/store", True, 67_108_864, 33_554_432)
PLAIN = MountUse(("/mnt/plain data",), "server:/plain", False, 8_388_608, 0)
USE = KernelUse(("host-0", "host-1"), (STORE, PLAIN), 256, None)


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


def test_the_page_shows_them_only_where_they_are(tmp_path, make_record, make_chunk, make_hot):
    without = CycleReport((make_record(make_chunk()), make_record(make_hot())))
    assert "FS-Cache" not in without.to_html(tmp_path / "without.html").read_text()
    both = CycleReport((make_record(make_chunk()), make_record(make_hot(), kernels=[USE])))
    page = both.to_html(tmp_path / "with.html").read_text()
    section = page[page.index("NFS and FS-Cache below the hosts") :]
    rows = section[section.index("<tbody>") : section.index("</tbody>")].split("<tr>")[1:]
    assert len(rows) == 2
    assert '<th scope="row">2</th>' in rows[0]  # the cycle that has any
    for text in ("host-0, host-1", "/mnt/store, /mnt/&lt;bind&gt; (server:/store)", "yes",
                 "67.1 MB", "33.6 MB", "256", "not counted"):  # fmt: skip
        assert text in rows[0]
    for text in ("/mnt/plain data (server:/plain)", "no", "8.39 MB", "0 B"):
        assert text in rows[1]
