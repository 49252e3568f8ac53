"""The metrics, the rules and the dashboard's queries in a real Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np
import pytest
import yaml

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.access_log import Totals
from hepcache_bench.ports import free_port

DEPLOY = Path(__file__).parents[3] / "deploy"
SCRIPT = DEPLOY / "ansible/roles/monitoring/files/hepcache-metrics"
RULES = DEPLOY / "monitoring/alerts.yml"
DASHBOARD = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())
BOUND_S = 60.0


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a volume with the caches of two users, as far as directories go."""
    volume = tmp_path_factory.mktemp("ssd")
    for user in ("alice", "bob"):
        cache = ColumnCache(volume / user / "columns", capacity_bytes=1 << 30)
        key = ColumnKey("uuid", "tag", "Events", 0, 100, "Jet_pt")
        assert cache.put(key, Entry(b"", (np.arange(100_000),)))
        cache.close()
    return volume


def work(caches: Path) -> None:
    """Let the caches count as after a run."""
    for user in ("alice", "bob"):
        cache = ColumnCache(caches / user / "columns", capacity_bytes=1 << 30)
        cache.add_totals(
            Totals(
                done=7,
                failed=3,
                hits=30,
                misses=10,
                hit_bytes=3 << 20,
                miss_bytes=1 << 20,
                origin_bytes=1 << 19,
                evicted=1,
                evicted_bytes=1 << 40,
                damaged=1,
            )
        )
        cache.close()


def collect(caches: Path, directory: Path) -> None:
    hepcache = Path(sys.executable).with_name("hepcache")
    subprocess.run(
        [SCRIPT, hepcache, caches, caches / "none", directory / "hepcache.prom"], check=True
    )


def until(asked: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := asked():
            return found
        time.sleep(0.5)
    raise TimeoutError(what)


@pytest.fixture(scope="module")
def prometheus(
    caches: Path, debian: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of a server that collects the metrics every second."""
    debian("prometheus", needs="prometheus")
    debian("prometheus-node-exporter", needs="prometheus-node-exporter")
    directory = tmp_path_factory.mktemp("prometheus")
    collect(caches, directory)
    exporter, server = free_port(), free_port()
    (directory / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(RULES)],
                "scrape_configs": [
                    {
                        "job_name": "workers",
                        "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}],
                    }
                ],
            }
        )
    )
    commands = (
        (
            "prometheus-node-exporter",
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={directory}",
            f"--web.listen-address=127.0.0.1:{exporter}",
        ),
        (
            "prometheus",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{server}",
        ),
    )
    address = f"http://127.0.0.1:{server}/api/v1"
    with ExitStack() as running:
        for command in commands:
            with (directory / f"{command[0]}.log").open("w") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            running.callback(process.wait)
            running.callback(process.terminate)
        until(lambda: values(address, "hepcache_chunks_total"), "the first metrics")
        time.sleep(3.0)  # rates need several looks at what was before
        work(caches)
        collect(caches, directory)
        yield address


def ask(address: str, **parameters: str) -> Any:
    """Return what the server answers; nothing where it does not yet."""
    try:
        with urlopen(f"{address}?{urlencode(parameters)}", timeout=10) as answer:
            found = json.load(answer)
    except URLError:
        return None
    assert found["status"] == "success", found
    return found["data"]


def values(address: str, query: str) -> list[dict[str, Any]]:
    """Return what a query gives."""
    found = ask(f"{address}/query", query=query)
    return [] if found is None else list(found["result"])


def test_numbers_are_what_the_caches_counted(prometheus: str) -> None:
    user = 'user="root"' if os.geteuid() == 0 else 'user!=""'
    wanted = {
        f'hepcache_chunks_total{{{user},outcome="done"}}': 14,
        f'hepcache_chunks_total{{{user},outcome="failed"}}': 6,
        f'hepcache_columns_total{{{user},cause="hit"}}': 60,
        f"hepcache_origin_bytes_total{{{user}}}": 1 << 20,
        f"hepcache_damaged_columns_total{{{user}}}": 2,
    }
    for query, number in wanted.items():
        assert until(
            lambda query=query, number=number: [
                found for found in values(prometheus, query) if float(found["value"][1]) == number
            ],
            f"{query} = {number}",
        )
    (used,) = values(prometheus, f"hepcache_user_bytes{{{user}}}")
    assert float(used["value"][1]) > 1_500_000


@pytest.mark.parametrize(
    "expression",
    [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]],
    ids=[panel["title"] for panel in DASHBOARD["panels"]],
)
def test_every_panel_of_the_dashboard_shows_something(prometheus: str, expression: str) -> None:
    query = expression.replace("$__rate_interval", "60s").replace("$instance", ".*")
    found = until(lambda: values(prometheus, query), query)
    assert all(float(row["value"][1]) >= 0 for row in found)


def test_rules_are_sound_and_warn(prometheus: str) -> None:
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)

    def states() -> dict[str, str]:
        groups = ask(f"{prometheus}/rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules
        return {rule["name"]: rule["state"] for rule in rules}

    def warned() -> bool:
        found = states()
        return (
            found["HepcacheDamagedColumns"] == "firing"
            and found["HepcacheChunksFail"] == "pending"
            and found["HepcacheEvictsTooMuch"] == "pending"
        )

    until(warned, "the alerts of what was counted")
    assert states()["HepcacheMetricsOld"] == "inactive"
