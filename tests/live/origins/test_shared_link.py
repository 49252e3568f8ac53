"""Hosts behind links of 1, 4 and 10 units that share a server's link."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.live.network import Network
from tests.live.origins import servers

DRIVER = Path(__file__).parent / "cycles.py"
LINKS = {"one": 4, "four": 16, "ten": 40}  # Mbit/s
SERVER = 40
CHUNK = 500


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hepcache-live-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.timeout(300)
def test_cycles_of_unlike_hosts_that_share_an_origin(
    network: Network, debian: Callable[..., None], place: Path
) -> None:
    from hepcache.bench.plan import BENCHMARK_COLUMNS
    from hepcache.samples.nanoaod import write_nanoaod

    files = place / "files"
    (path,) = write_nanoaod(
        files, events=6000, files=1, compression="zstd:1", cluster=CHUNK,
        branches=BENCHMARK_COLUMNS, jobs=1,
    )  # fmt: skip
    network.host("server")
    network.shape("server", f"{SERVER}mbit")
    desk = network.host("desk")
    common = {
        "DASK_HEPCACHE__CATALOGUE": str(place / "catalogue.sqlite"),
        "DASK_HEPCACHE__SEGMENT__ENTRIES": str(CHUNK),
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s",
    }
    log = (place / "dask.log").open("w")
    with ExitStack() as stack:
        stack.callback(log.close)
        server = servers.nginx(network, debian, files, place / "nginx", "http")
        server.start()
        stack.callback(server.stop)
        scheduler = f"tcp://{desk}:8786"
        start = [sys.executable, "-m"]
        running = [
            network.start(
                "desk",
                [
                    *start,
                    "distributed.cli.dask_scheduler",
                    "--host",
                    desk,
                    "--port",
                    "8786",
                    "--no-dashboard",
                    "--preload",
                    "hepcache.scheduling.plugin",
                ],
                common,
                stdout=log,
                stderr=log,
            )
        ]
        for name, rate in LINKS.items():
            address = network.host(name)
            network.shape(name, f"{rate}mbit")
            own = {
                **common,
                "DASK_HEPCACHE__HOST": name,
                "DASK_HEPCACHE__CACHE__DIRECTORY": str(place / "caches" / name),
            }
            running.append(
                network.start(
                    name,
                    [
                        *start,
                        "distributed.cli.dask_worker",
                        scheduler,
                        "--host",
                        address,
                        "--nthreads",
                        "1",
                        "--name",
                        name,
                        "--no-dashboard",
                        "--local-directory",
                        str(place / f"{name}-dask"),
                        "--preload",
                        "hepcache.process.worker",
                    ],
                    own,
                    stdout=log,
                    stderr=log,
                )
            )
        for one in running:
            stack.callback(network.stop, one)
        done = network.run(
            "desk",
            [*start[:1], str(DRIVER), scheduler, server.url(path), str(path), str(CHUNK),
             str(len(LINKS))],
            common, timeout=200,
        )  # fmt: skip
        said = f"{done.stderr[-2000:]}\n{Path(log.name).read_text()[-2000:]}"
        assert done.returncode == 0, said
    found = json.loads(done.stdout.splitlines()[-1])
    cold, hot = found["cycles"]
    print(json.dumps({name: found["cycles"][i] for i, name in enumerate(("cold", "hot"))}))
    assert cold["output"] == hot["output"] == found["plain"]
    assert cold["hosts"].keys() == LINKS.keys()
    assert sum(chunks for chunks, _ in cold["hosts"].values()) >= 6000 / CHUNK
    # Nobody got more than a link carries.
    assert 0 < cold["read"] < 1.2 * SERVER / 8 * 1e6 * cold["wall_s"]
    for name, (_, nbytes) in cold["hosts"].items():
        assert nbytes < 1.2 * LINKS[name] / 8 * 1e6 * cold["wall_s"] + 1e5
    # A chunk or two may move to whom it helps; all else is where it was read.
    assert hot["hit_ratio"] > 0.8
    assert hot["read"] < 0.25 * cold["read"]
