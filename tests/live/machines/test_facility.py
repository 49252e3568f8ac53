"""Two virtual machines become a file server and a worker, and FS-Cache does what it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hepcache.bench.samples.nanoaod import write_nanoaod

from .conftest import Facility, recap

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

COLUMNS = ["Muon_pt", "Muon_eta", "MET_pt"]


@pytest.fixture(scope="module")
def configured(facility: Facility) -> Facility:
    """Return the machines after the first run of the roles; checking them beforehand works."""
    facility.play("--check")
    counts = recap(facility.play())
    assert counts["server"]["changed"] > 0
    assert counts["worker"]["changed"] > 0
    return facility


def test_a_second_run_changes_nothing(configured: Facility) -> None:
    for name, counts in recap(configured.play()).items():
        assert (name, counts["changed"], counts["failed"]) == (name, 0, 0)


def test_only_store_is_mounted_with_fsc(configured: Facility) -> None:
    mounts = configured.worker.run("findmnt -rn -t nfs4 -o TARGET,OPTIONS").splitlines()
    options = {line.split()[0]: line.split()[1].split(",") for line in mounts}
    assert set(options) == {"/home", "/scratch", "/store"}
    assert all("vers=4.2" in one for one in options.values())
    assert [name for name, one in options.items() if "fsc" in one] == ["/store"]


def test_the_second_pass_takes_nothing_from_the_server(
    configured: Facility, tmp_path: Path
) -> None:
    (path,) = write_nanoaod(
        tmp_path / "sample", events=4000, files=1, compression="zstd:1", cluster=2000
    )
    size = Path(path).stat().st_size
    configured.server.send(Path(path), "/srv/nfs/store/data.root")
    configured.worker.send(Path(__file__).with_name("guest_read.py"), "/root/guest_read.py")
    command = f"{sys.prefix}/bin/python /root/guest_read.py /store/data.root 2 {' '.join(COLUMNS)}"
    first, second = json.loads(configured.worker.run(command).splitlines()[-1])
    assert first["output"] == second["output"]
    assert first["cache"] == second["cache"] == "fscache"
    assert first["fsc"]
    assert first["server_bytes"] == first["reported"] > 0
    assert second["server_bytes"] == second["reported"] == 0
    assert second["application_bytes"] > 0
    # The column cache stayed out of it, and of the file only what was touched is kept.
    assert (first["held"], second["held"]) == (0, 0)
    kept = int(configured.worker.run("du -s --block-size=1 /ssd/fscache").split()[0])
    assert 0 < kept < 0.7 * size


def test_the_metrics_tell_of_it(configured: Facility) -> None:
    configured.worker.run("systemctl start hepcache-metrics.service")
    text = configured.worker.run("cat /var/lib/prometheus/node-exporter/hepcache.prom")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['hepcache_volume_bytes{state="size"}']) > 800_000_000
    assert int(values['fscache_operations_total{kind="read"}']) > 0
