"""Two virtual machines become a file server and a worker, and FS-Cache does what it is for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import uproot

from ..condor.lan import wait_until
from .conftest import COLUMNS, GUEST_READ, Facility, recap

pytestmark = [pytest.mark.live, pytest.mark.timeout(2400)]

Ranges = list[tuple[int, int]]
# A column of lists comes with the counter of its collection.
TOUCHED = sorted([*COLUMNS, "nMuon"])


@pytest.fixture(scope="module")
def configured(facility: Facility) -> Facility:
    """Return the machines after the first run of the roles; checking them beforehand works."""
    facility.play("--check")
    counts = recap(facility.play())
    assert counts["server"]["changed"] > 0
    assert counts["worker"]["changed"] > 0
    return facility


def test_a_second_run_changes_nothing(configured: Facility) -> None:
    counts = recap(configured.play())
    assert set(counts) == {"server", "worker"}
    for name, count in counts.items():
        assert (name, count["changed"], count["failed"]) == (name, 0, 0)
        assert count["ok"] > 20


def test_only_store_is_mounted_with_fsc(configured: Facility) -> None:
    mounts = configured.worker.run("findmnt -rn -t nfs4 -o TARGET,OPTIONS").splitlines()
    options = {line.split()[0]: line.split()[1].split(",") for line in mounts}
    assert set(options) == {"/home", "/scratch", "/store"}
    assert all("vers=4.2" in one for one in options.values())
    assert [name for name, one in options.items() if "fsc" in one] == ["/store"]


def test_the_pool_knows_the_worker_and_its_cache(configured: Facility) -> None:
    # The collector of an emulated machine may need a while until it listens, too.
    ask = "condor_status -af Machine HepcacheHost HepcacheCapacityMiB 2> /dev/null || true"

    def advertised() -> list[str]:
        # The startd advertises the machine before its cron job has looked at the cache.
        words = configured.server.run(ask).split()
        return [] if "undefined" in words else words

    wait_until(advertised, timeout_s=240, what="the worker's startd")
    machine, host, capacity_mib = advertised()
    assert machine == host == "worker.pool.test"
    assert 800 < int(capacity_mib) < 1024


def test_the_second_pass_takes_nothing_from_the_server(configured: Facility) -> None:
    configured.server.send(configured.sample, "/srv/nfs/store/data.root")
    configured.worker.send(GUEST_READ, "/root/guest_read.py")
    command = f"{sys.prefix}/bin/python /root/guest_read.py /store/data.root"
    said = configured.worker.run(f"{command} fscache,fscache,both,both {' '.join(COLUMNS)}")
    passes = json.loads(said.splitlines()[-1])["passes"]
    assert [one["cache"] for one in passes] == ["fscache", "fscache", "both", "both"]
    assert len({one["output"] for one in passes}) == 1

    # What the kernel has counted in /proc/self/mountstats, and what the record says of it.
    fsc, asked, served = zip(*(one["mounts"]["/store"] for one in passes), strict=True)
    assert all(fsc)
    assert served[0] > 0
    assert served[1:] == (0, 0, 0)
    assert [one["reported"] for one in passes] == list(served)
    # The second pass and the third read through NFS, the last one not at all.
    assert asked[1] > 0
    assert asked[2] > 0
    assert asked[3] == 0
    # hepcache's own cache has kept nothing in mode fscache, and what was touched in mode both.
    assert [one["held"] for one in passes] == [[], [], TOUCHED, TOUCHED]


def test_the_kernel_keeps_only_what_was_touched(configured: Facility) -> None:
    """Runs after the one above, on what that has left in the cache."""
    configured.worker.send(Path(__file__).with_name("guest_extents.py"), "/root/extents.py")
    said = configured.worker.run("sync && python3 /root/extents.py /ssd/fscache")
    kept = [(start, stop) for start, stop in json.loads(said)]
    touched, others = baskets(configured.sample, set(TOUCHED))
    size = configured.sample.stat().st_size
    assert sum(stop - start for start, stop in touched) == overlap(touched, kept)
    assert sum(stop - start for start, stop in kept) < size / 10
    # Neighbours on the same pages come along; of all others nothing is there.
    assert overlap(others, kept) < sum(stop - start for start, stop in others) / 50


def baskets(sample: Path, names: set[str]) -> tuple[Ranges, Ranges]:
    """Return where the baskets of some branches are, and those of all others."""
    touched: Ranges = []
    others: Ranges = []
    with uproot.open({sample: "Events"}) as tree:
        for branch in tree.branches:
            for number in range(branch.num_baskets):
                key = branch.basket_key(number)
                place = (key.fSeekKey, key.fSeekKey + key.fNbytes)
                (touched if branch.name in names else others).append(place)
    return touched, others


def overlap(some: Ranges, others: Ranges) -> int:
    """Return how many bytes of some ranges, which don't overlap, others hold."""
    return sum(
        max(0, min(stop, end) - max(start, begin)) for start, stop in some for begin, end in others
    )


def test_the_metrics_tell_of_it(configured: Facility) -> None:
    configured.worker.run("systemctl start hepcache-metrics.service")
    text = configured.worker.run("cat /var/lib/prometheus/node-exporter/hepcache.prom")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['hepcache_volume_bytes{state="size"}']) > 800_000_000
    assert int(values['fscache_operations_total{kind="read"}']) > 0
    assert int(values['hepcache_chunks_total{user="root",outcome="done"}']) >= 4
    assert int(values['hepcache_columns_total{user="root",cause="hit"}']) >= len(COLUMNS)
