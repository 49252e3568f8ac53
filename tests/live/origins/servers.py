"""Real servers of files: XRootD, nginx and an S3 server, on a host of the test network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.live.conftest import unable
from tests.live.network import Network

KEY, SECRET = "hepcache-reader", "the-secret-of-the-test"

_XROOTD = """\
all.export {files} r/o
all.adminpath {home}
all.pidpath {home}
xrd.port 1094
xrd.protocol xrootd *
oss.localroot /
"""

_NGINX = """\
daemon off; user root; worker_processes 2; pid {home}/nginx.pid; error_log {home}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log {home}/access.log; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  server {{
    listen 80; listen 443 ssl; root {files};
    ssl_certificate {home}/server.pem; ssl_certificate_key {home}/server.key;
    location /private/ {{
      alias {files}/; auth_basic "members"; auth_basic_user_file {home}/users;
    }}
  }}
}}
"""


@dataclass
class Server:
    """A server that runs on a host, can be killed, and started again."""

    network: Network
    command: list[str]
    port: int
    prefix: str
    log: Path
    options: dict[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    host: str = "server"

    def url(self, path: Path) -> str:
        return self.prefix + (os.fspath(path) if self.prefix.startswith("root") else path.name)

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = self.network.start(
                self.host, self.command, self.environment, stdout=log, stderr=log
            )
        ask = f"import socket; socket.create_connection(('127.0.0.1', {self.port}), 1)"
        for _ in range(150):
            done = self.network.run(self.host, [sys.executable, "-c", ask])
            if done.returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{self.command} does not start: {self.log.read_text()[-1000:]}")

    def stop(self) -> None:
        self.network.stop(self.process)


def xrootd(network: Network, debian: Callable[..., None], files: Path, home: Path) -> Server:
    debian("xrootd-server", needs="xrootd")
    home.mkdir()
    config = home / "xrootd.cfg"
    config.write_text(_XROOTD.format(files=files, home=home))
    shutil.chown(home, "xrootd")
    config.chmod(0o644)
    command = ["xrootd", "-c", str(config), "-R", "xrootd", "-l", str(home / "log"), "-n", "live"]
    return Server(
        network, command, 1094, f"root://{network.host('server')}/", home.parent / "xrootd.out"
    )


def nginx(
    network: Network,
    debian: Callable[..., None],
    files: Path,
    home: Path,
    scheme: str,
    host: str = "server",
) -> Server:
    debian("nginx-light", needs="nginx")
    debian("openssl", needs="openssl")
    home.mkdir()
    (home / "nginx.conf").write_text(_NGINX.format(files=files, home=home))
    address = network.host(host)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=live", "-addext", f"subjectAltName=IP:{address}",
         "-keyout", home / "server.key", "-out", home / "server.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    password = subprocess.run(
        ["openssl", "passwd", "-apr1", SECRET], check=True, capture_output=True, text=True
    )
    (home / "users").write_text(f"{KEY}:{password.stdout.strip()}\n")
    command = ["nginx", "-p", str(home), "-c", str(home / "nginx.conf")]
    return Server(
        network, command, 80, f"{scheme}://{address}/", home / "out.log",
        environment={"SSL_CERT_FILE": str(home / "server.pem")}, host=host,
    )  # fmt: skip


def s3(network: Network, files: Path, home: Path) -> Server:
    home.mkdir()
    python = home / "venv" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "--quiet", "--python", sys.executable, str(home / "venv")],
        [*uv, "pip", "install", "--quiet", "--python", str(python), "moto[server]>=5.2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            unable(f"the S3 server can't be installed: {done.stderr[-400:]}")
    address = network.host("server")
    command = [str(home / "venv" / "bin" / "moto_server"), "-H", "0.0.0.0", "-p", "9000"]
    options = {
        "key": KEY, "secret": SECRET,
        "client_kwargs": {"endpoint_url": f"http://{address}:9000", "region_name": "eu-central-1"},
    }  # fmt: skip
    server = Server(network, command, 9000, "s3://events/", home / "out.log", options)
    server.start()
    put = (
        "import sys, json, s3fs; fs = s3fs.S3FileSystem(**json.loads(sys.argv[1]));"
        "fs.mkdir('events'); [fs.put_file(p, 'events/' + p.rpartition('/')[2]) "
        "for p in sys.argv[2:]]"
    )
    paths = [os.fspath(path) for path in sorted(files.glob("*.root"))]
    done = network.run("server", [sys.executable, "-c", put, json.dumps(options), *paths])
    assert done.returncode == 0, done.stderr[-1000:]
    return server
