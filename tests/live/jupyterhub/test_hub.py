"""A real hub as role jupyter configures it: a user's server, its kernel, its dashboard."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import yaml
from jinja2 import Environment
from tests.live.conftest import unable
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from hepcache_bench.ports import free_port

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "deploy/ansible/roles/jupyter"
TOKEN = "of-this-test"
HEADERS = {"Authorization": f"token {TOKEN}"}
BOUND_S = 240.0  # of a busy machine; a quiet one takes some 15 s in all
# The user has no account on this machine, and no password.
OURS = f"""
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.services = [dict(name="test", api_token="{TOKEN}")]
c.JupyterHub.load_roles = [
    dict(name="test", services=["test"], scopes=["admin:users", "admin:servers", "access:servers"])
]
c.JupyterHub.hub_port = HUB_PORT
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:PROXY_PORT"
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = 240
c.Spawner.http_timeout = 240
"""
CELL = """
from hepcache import LocalCluster
cluster = LocalCluster(hosts=1, workers_per_host=1, dashboard_address="127.0.0.1:0")
print(cluster.dashboard_link)
"""


@pytest.fixture(scope="module")
def programs() -> tuple[Path, Path]:
    """Return the environment with the hub, and the directory of its front end."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    if shutil.which("npm") is None:
        unable("there is no npm; say: apt-get install npm")
    directory = ROOT / "out/live/jupyterhub"
    environment, proxy = directory / "environment", directory / "proxy"
    if not (directory / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        python = environment / "bin/python"
        packages = [*defaults["jupyter_hub_packages"], "jupyter-server", "ipykernel"]
        uv = Path(sys.prefix) / "bin/uv"
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", python, *packages], check=True
        )
        # What the tests use of hepcache is this environment's.
        found = subprocess.run(
            [python, "-c", "import site; print(site.getsitepackages()[0])"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        path = Path(found.stdout.strip()) / "hepcache-of-the-tests.pth"
        path.write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
        subprocess.run(
            ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", proxy,
             defaults["jupyter_hub_proxy"]],
            check=True,
        )  # fmt: skip
        (directory / "installed").touch()
    return environment, proxy


@pytest.fixture(scope="module")
def hub(programs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a hub with the role's configuration and the lines above."""
    environment, proxy = programs
    directory = tmp_path_factory.mktemp("hub")
    address = f"http://127.0.0.1:{free_port()}"
    template = (ROLE / "templates/jupyterhub_config.py.j2").read_text()
    config = (
        Environment(autoescape=False)
        .from_string(template)
        .render(
            ansible_managed="by a test",
            jupyter_hub_url=address,
            jupyter_hub_key="",
            jupyter_hub_certificate="",
            jupyter_hub_state=str(directory),
            jupyter_hub_proxy_directory=str(proxy),
            jupyter_hub_users=["alice"],
            jupyter_environment=str(environment),
        )
    )
    ours = OURS.replace("HUB_PORT", str(free_port())).replace("PROXY_PORT", str(free_port()))
    (directory / "jupyterhub_config.py").write_text(config + ours)
    log = directory / "hub.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [environment / "bin/jupyterhub", "--config", directory / "jupyterhub_config.py"],
            cwd=directory, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, "PATH": f"{environment}/bin:{os.environ['PATH']}"},
        )  # fmt: skip
    try:
        until(lambda: ask(f"{address}/hub/api", patient=True))
        try:
            yield address
        finally:
            print(log.read_text()[-6000:])  # pytest shows it where a test has failed
        # As an administrator would: a hub that ends leaves the servers alone.
        ask(f"{address}/hub/api/users/alice/server", "DELETE")
        until(lambda: not ask(f"{address}/hub/api/users/alice")["servers"])
    finally:
        process.terminate()
        process.wait(60)


def ask(address: str, method: str = "GET", *, patient: bool = False) -> Any:
    """Return what is answered; nothing where nobody answers yet.

    ``patient``: nothing where an error is answered, either, as the front end does at first.
    """
    request = Request(address, headers=HEADERS, method=method)
    try:
        with urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
    except HTTPError as error:
        if patient:
            return None
        raise AssertionError(f"{method} {address}: {error} {error.read()[:500]!r}") from error
    except URLError:
        return None
    try:
        return json.loads(text or "true")
    except json.JSONDecodeError:
        return text


def until(check: Callable[[], Any]) -> Any:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.3)
    raise TimeoutError(f"not within {BOUND_S:.0f} s")


async def execute(address: str, code: str) -> str:
    """Run code in a kernel; return what it prints."""
    asked = {
        "header": {
            "msg_id": "1", "msg_type": "execute_request", "username": "", "session": "1",
            "version": "5.3", "date": "2026-01-01T00:00:00Z",
        },
        "parent_header": {}, "metadata": {}, "buffers": [], "channel": "shell",
        "content": {"code": code, "silent": False, "store_history": False,
                    "user_expressions": {}, "allow_stdin": False},
    }  # fmt: skip
    channel = await websocket_connect(
        HTTPRequest(address.replace("http:", "ws:"), headers=HEADERS, connect_timeout=60)
    )
    await channel.write_message(json.dumps(asked))
    said, status = "", ""
    # Output and the kernel's reply come by ways of their own, in any order.
    while not (said and status):
        text = await asyncio.wait_for(channel.read_message(), BOUND_S)
        assert isinstance(text, str), said
        message = json.loads(text)
        kind, content = message["msg_type"], message["content"]
        assert kind != "error", content
        if kind == "stream":
            said += content["text"]
        elif kind == "execute_reply":
            status = content["status"]
    channel.close()
    assert status == "ok"
    return said


def test_a_user_has_a_kernel_with_hepcache_and_sees_its_dashboard(hub: str) -> None:
    ask(f"{hub}/hub/api/users/alice/server", "POST")
    until(lambda: ask(f"{hub}/hub/api/users/alice")["servers"].get("", {}).get("ready"))
    kernel = ask(f"{hub}/user/alice/api/kernels", "POST")["id"]
    said = asyncio.run(execute(f"{hub}/user/alice/api/kernels/{kernel}/channels", CELL))
    link = said.split()[-1]
    assert link.startswith("/user/alice/proxy/")
    page = ask(f"{hub}{link.replace('/status', '/hepcache')}")
    assert "hepcache" in page
    assert "Bokeh" in page
    ask(f"{hub}/user/alice/api/kernels/{kernel}", "DELETE")
