"""Real object stores on this machine: versitygw for S3, and Ceph with one monitor and one OSD."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.live.conftest import unable

KEY, SECRET = "hepcache-writer", "the-secret-of-the-test"
BUCKET = "hep"

_CEPH = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{port}
mon initial members = a
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon osd min down reporters = 1
osd heartbeat grace = 5
ms bind ipv6 = false
run dir = {home}
admin socket = {home}/$name.asok
log file = {home}/$name.log
pid file = {home}/$name.pid
[mon.a]
mon data = {home}/mon
host = localhost
[osd]
osd data = {home}/osd
osd objectstore = bluestore
bluestore block path = {home}/block
bluestore block create = true
bluestore block size = 2147483648
osd memory target = 939524096
osd max object name len = 256
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(ready: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait for something outside of this process, that gives no sign of its own."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)


@dataclass
class Daemon:
    """A process that can be killed and started again."""

    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **self.environment}, stdout=log, stderr=log
            )

    def kill(self) -> None:
        if not hasattr(self, "process"):
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(timeout=30)


class Gateway(Daemon):
    """versitygw: S3 over a directory."""

    def __init__(self, home: Path, program: str) -> None:
        self.files, self.port = home / "files", free_port()
        (self.files / BUCKET).mkdir(parents=True)
        super().__init__(
            [program, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.files)],
            home / "gateway.log",
            {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        )

    def start(self) -> None:
        super().start()
        wait_for(self.answers, "the S3 gateway's start")

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-1000:]
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def uri(self, path: str, port: int | None = None) -> str:
        return f"ntpl+s3+http://127.0.0.1:{port or self.port}/{BUCKET}/{path}"


def gateway_program() -> str:
    """Return versitygw, which Go builds where it isn't yet."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found := shutil.which("versitygw"):
        return found
    if go is None:
        unable("there is neither versitygw nor a Go to build it with")
    asked = subprocess.run([go, "env", "GOPATH"], check=True, capture_output=True, text=True)
    program = Path(asked.stdout.strip(), "bin", "versitygw")
    if not program.exists():
        done = subprocess.run(
            [go, "install", "github.com/versity/versitygw/cmd/versitygw@latest"],
            capture_output=True, text=True, timeout=900, check=False,
            env={**os.environ, "GOBIN": str(program.parent)},
        )  # fmt: skip
        if done.returncode:
            unable(f"versitygw can't be built: {done.stderr[-400:]}")
    return str(program)


class Ceph:
    """One monitor and one OSD, with pool ``hep``; the OSD keeps its objects when it is killed."""

    def __init__(self, home: Path) -> None:
        self.home, self.conf = home, home / "ceph.conf"
        fsid, port = str(uuid.uuid4()), free_port()
        self.conf.write_text(_CEPH.format(fsid=fsid, port=port, home=home))
        monmap = str(home / "monmap")
        for name in ("mon", "osd"):
            (home / name).mkdir()
        address = f"[v1:127.0.0.1:{port}]"
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        conf = ["-f", "-c", str(self.conf)]
        self.monitor = Daemon(["ceph-mon", *conf, "-i", "a"], home / "mon.out")
        self.osd = Daemon(["ceph-osd", *conf, "-i", "0"], home / "osd.out")
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self.monitor.start()
        self._run("ceph", "osd", "new", osd := str(uuid.uuid4()))
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.osd.start()
        self._run("ceph", "osd", "pool", "create", "hep", "8")
        # Placement groups are made meanwhile: librados waits for them.
        wait_for(lambda: "1 up" in self._run("ceph", "osd", "stat"), "the OSD")

    def uri(self, path: str, more: str = "") -> str:
        return f"rados://hep/{path}?conf={self.conf}{more}"

    def close(self) -> None:
        self.osd.kill()
        self.monitor.kill()

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, *([] if program == "monmaptool" else ["-c", str(self.conf)])]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stderr[-1000:]}"
        return done.stdout


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start Python code whose lines of output can be waited for."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
