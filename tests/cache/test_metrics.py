"""What caches count, and how Prometheus reads it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.access_log import Totals, read_totals
from hepcache.cache.metrics import metrics_of, prometheus_text

USER = pwd.getpwuid(os.geteuid()).pw_name


def values(text: str) -> dict[str, int]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def stored(cache: ColumnCache, number: int, nbytes: int) -> ColumnKey:
    key = ColumnKey("uuid", "tag", "Events", 0, 100, f"column{number}")
    cache.put(key, Entry(b"", (np.arange(nbytes, dtype=np.uint8),)))
    return key


def test_totals_are_added_up_by_threads_and_processes(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30)
    script = (
        "import sys; from pathlib import Path\n"
        "from hepcache.cache import ColumnCache\n"
        "from hepcache.cache.access_log import Totals\n"
        "cache = ColumnCache(Path(sys.argv[1]), capacity_bytes=1 << 30)\n"
        "for _ in range(50): cache.add_totals(Totals(done=1, origin_bytes=10))\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", script, cache.directory]) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(200):
            threads.submit(cache.add_totals, Totals(done=1, hits=3))
    assert [other.wait(60) for other in others] == [0, 0]
    totals, _ = read_totals(cache.layout.access_log)
    assert totals == Totals(done=300, hits=600, origin_bytes=1000)


def test_an_eviction_and_a_damaged_column_are_counted(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=1_000_000, codec="raw")
    keys = [stored(cache, number, 300_000) for number in range(6)]
    totals, shares = read_totals(cache.layout.access_log)
    assert totals.evicted >= 3
    assert totals.evicted_bytes >= 900_000
    assert shares == {os.geteuid(): cache.used_bytes}

    path = Path(cache.layout.column(keys[-1]))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    assert ColumnCache(tmp_path / "cache", capacity_bytes=1_000_000).get(keys[-1])[1] == "corrupt"
    assert read_totals(cache.layout.access_log)[0].damaged == 1


def test_caches_of_a_user_are_added_up_for_prometheus(tmp_path: Path) -> None:
    for host in ("one", "two"):
        cache = ColumnCache(tmp_path / host, capacity_bytes=1 << 30)
        stored(cache, 0, 10_000)
        cache.add_totals(Totals(done=2, failed=1, hits=5, misses=1, hit_bytes=50))
    text = prometheus_text(metrics_of([str(tmp_path / "*")]))
    found = values(text)
    assert found[f'hepcache_chunks_total{{user="{USER}",outcome="done"}}'] == 4
    assert found[f'hepcache_chunks_total{{user="{USER}",outcome="failed"}}'] == 2
    assert found[f'hepcache_columns_total{{user="{USER}",cause="hit"}}'] == 10
    assert found[f'hepcache_column_bytes_total{{user="{USER}",cause="hit"}}'] == 100
    assert found[f'hepcache_user_bytes{{user="{USER}"}}'] >= 20_000
    assert prometheus_text(metrics_of([str(tmp_path)])) == text


@pytest.mark.parametrize("content", [b"", b"x" * 4096, b"HCLEDGER"])
def test_what_is_no_cache_is_left_out_and_not_changed(tmp_path: Path, content: bytes) -> None:
    """An administrator reads what users have written, and must not follow links."""
    cache = ColumnCache(tmp_path / "good", capacity_bytes=1 << 30)
    cache.add_totals(Totals(done=1))
    (tmp_path / "bad" / "v1").mkdir(parents=True)
    (tmp_path / "bad" / "ledger").write_bytes(content)
    (tmp_path / "link" / "v1").mkdir(parents=True)
    (tmp_path / "link" / "ledger").symlink_to(cache.layout.access_log)
    found = values(prometheus_text(metrics_of([str(tmp_path)])))
    assert found[f'hepcache_chunks_total{{user="{USER}",outcome="done"}}'] == 1
    assert (tmp_path / "bad" / "ledger").read_bytes() == content
