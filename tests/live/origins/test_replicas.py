"""The link to a file's first place is cut in mid-run; the run ends right, and says so."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.live.network import Network
from tests.live.origins import servers

DRIVER = Path(__file__).parent / "replicated_run.py"
CHUNK = 500
RATES = {"near": "6mbit", "far": "20mbit"}


@pytest.mark.timeout(900)
def test_a_link_is_cut_in_mid_run(network: Network, debian: Callable[..., None]) -> None:
    from hepcache.bench.plan import BENCHMARK_COLUMNS
    from hepcache.samples.nanoaod import write_nanoaod

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hepcache-live-")))
        place.chmod(0o755)
        (path,) = write_nanoaod(
            place / "files", events=6000, files=1, compression="zstd:1", cluster=CHUNK,
            branches=BENCHMARK_COLUMNS, jobs=1,
        )  # fmt: skip
        urls = []
        for name, rate in RATES.items():
            server = servers.nginx(network, debian, path.parent, place / name, "http", name)
            network.shape(name, rate)
            server.start()
            stack.callback(server.stop)
            urls.append(server.url(path))
        network.host("reader")
        environment = {
            "DASK_HEPCACHE__CATALOGUE": str(place / "catalogue.sqlite"),
            "DASK_HEPCACHE__CACHE__DIRECTORY": str(place / "columns"),
            "DASK_HEPCACHE__SEGMENT__ENTRIES": str(CHUNK),
            "DASK_HEPCACHE__ORIGIN__AHEAD": "0",
        }
        output = stack.enter_context((place / "output").open("w+"))
        errors = stack.enter_context((place / "errors").open("w"))
        running = network.start(
            "reader", [sys.executable, str(DRIVER), *urls, str(path), str(CHUNK)], environment,
            stdout=output, stderr=errors, cwd=place,
        )  # fmt: skip
        stack.callback(network.stop, running)
        log, size = place / "near" / "access.log", path.stat().st_size
        until = time.monotonic() + 400  # of a busy machine: plain coffea reads the file first
        while sent(log) < 0.3 * size:
            assert running.poll() is None, (place / "errors").read_text()[-2000:]
            assert time.monotonic() < until, (place / "errors").read_text()[-2000:]
            time.sleep(0.05)
        network.cut("near")
        stack.callback(network.join, "near")
        done = sent(log)
        assert running.wait(400) == 0, (place / "errors").read_text()[-2000:]
        output.seek(0)
        found = json.loads(output.read().splitlines()[-1])
    print(json.dumps({"wall_s": found["wall_s"], "told": found["told"]}))
    assert done < 0.9 * size
    assert found["output"] == found["plain"]
    near, far = (url.rpartition("/")[0] for url in urls)
    assert found["places"][near]["failures"] >= 1
    assert 0 < found["places"][near]["read_bytes"] < size
    assert found["places"][far]["failures"] == 0
    assert found["places"][far]["read_bytes"] > 0
    assert f"{near} failed " in " ".join(found["told"].split())


def sent(log: Path) -> int:
    """Return how many bytes a server has sent in answers that it has logged."""
    if not log.exists():
        return 0
    lines = [line.split() for line in log.read_text().splitlines()]
    return sum(int(words[9]) for words in lines if words[5:6] == ['"GET'] and words[8] == "206")
