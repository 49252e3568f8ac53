"""A real Dask Gateway, whose clusters are processes of this machine, as docs/pools.md has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import psutil
import pytest
import uproot
from coffea.nanoevents import BaseSchema

import hepcache
from hepcache.process.worker import store_pending

ROOT = Path(__file__).parents[3]
PACKAGES = [
    "colorlog==6.12.0", "dask-gateway==2026.3.0", "dask-gateway-server==2026.3.0",
    "greenlet==3.5.6", "sqlalchemy==2.1.9",
]  # fmt: skip
PATIENCE_S = 600
# When one is forgotten it closes itself once more, and asks for a loop that has ended.
KEPT: list[Any] = []


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the directory of what the gateway needs besides hepcache's own environment."""
    directory = tmp_path_factory.mktemp("gateway-packages")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-deps", "--target", directory, *PACKAGES],
        check=True,
        timeout=300,
    )
    sys.path.insert(0, str(directory))
    yield directory
    sys.path.remove(str(directory))


def until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    for _ in range(int(patience_s / 0.1)):
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


@pytest.fixture
def address(packages: Path, tmp_path: Path) -> Iterator[str]:
    """Return the address of a gateway that is configured as the page says."""
    page = (ROOT / "docs/pools.md").read_text()
    (recipe,) = re.findall(r"^```py\n(c\..*?)^```", page, re.DOTALL | re.MULTILINE)
    recipe = recipe.replace('"dask",', f'"{sys.executable}", "-m", "dask",')
    recipe = recipe.replace("/ssd/hepcache", f"{tmp_path}/ssd")
    backend = "dask_gateway_server.backends.local.UnsafeLocalBackend"
    config = tmp_path / "config.py"
    config.write_text(
        f"{recipe}\n"
        f'c.DaskGateway.backend_class = "{backend}"\n'
        'c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"\n'
        'c.Proxy.address = "127.0.0.1:0"\n'
        f'c.UnsafeLocalBackend.clusters_directory = "{tmp_path}"\n'
        # A busy machine takes long to start them.
        f"c.UnsafeLocalBackend.cluster_start_timeout = {PATIENCE_S}\n"
        f"c.UnsafeLocalBackend.worker_start_timeout = {PATIENCE_S}\n"
        f"c.UnsafeLocalBackend.cluster_heartbeat_timeout = {PATIENCE_S}\n"
    )
    with (tmp_path / "gateway.log").open("w") as log:
        gateway = subprocess.Popen(
            [sys.executable, "-c", "from dask_gateway_server.app import main; main()",
             "-f", str(config)],
            env={**os.environ, "PYTHONPATH": str(packages)}, cwd=tmp_path, stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{until(lambda: proxy_port(gateway))}"
        finally:
            gateway.terminate()
            gateway.wait(60)


def proxy_port(gateway: subprocess.Popen[bytes]) -> int | None:
    """Return the port on which the gateway's proxy listens, which has chosen a free one."""
    assert gateway.poll() is None, "the gateway has ended: see gateway.log"
    for process in psutil.Process(gateway.pid).children():
        if "dask-gateway-proxy" in " ".join(process.cmdline()):
            ports = {
                connection.laddr.port
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            }
            # Others of its ports are for its own gateway.
            return min((port for port in ports if answers(port)), default=None)
    return None


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.timeout(1200)
def test_a_cluster_of_a_gateway_has_its_cache_back_after_it_was_scaled_to_nothing(
    address: str, tmp_path: Path
) -> None:
    from dask_gateway import Gateway
    from dask_gateway.auth import BasicAuth

    with uproot.recreate(tmp_path / "x.root") as file:
        file.mktree("Events", {"x": np.arange(2000)})
    files = {"data": {"files": {str(tmp_path / "x.root"): "Events"}}}
    expected = {"events": 2000, "x": 1999 * 1000}

    def total(events: Any) -> dict[str, int]:
        # In here, because workers can't import this module.
        return {"events": len(events), "x": int(ak.sum(events.x))}

    def there(wanted: int) -> None:
        cluster.scale(wanted)
        until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == wanted)

    with (
        Gateway(address, auth=BasicAuth("alice")) as gateway,
        gateway.new_cluster() as cluster,
        cluster.get_client() as client,
    ):
        KEPT.extend([gateway, cluster.gateway])
        there(1)
        executor = hepcache.Executor(client=hepcache.attach(client), status=False)
        run = hepcache.Runner(executor, schema=BaseSchema, chunksize=100)
        assert run(files, total) == expected
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) > 0
        client.run(store_pending)
        assert list(tmp_path.glob("ssd/*"))
        there(0)
        there(1)
        assert run(files, total) == expected
        assert sum(chunk.origin_bytes for chunk in run.run_record.chunks) == 0
        assert {cause for chunk in run.run_record.chunks for cause in chunk.causes} == {"hit"}
