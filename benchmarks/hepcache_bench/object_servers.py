"""Object stores of this machine: versitygw for S3, and Ceph with one monitor and one OSD."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hepcache.errors import ClusterError
from hepcache_bench.ports import free_port

__all__ = [
    "BUCKET", "KEY", "SECRET", "Ceph", "Daemon", "Gateway", "ceph_running", "find_gateway",
    "gateway_running", "missing_for_ceph", "missing_for_s3", "wait_for",
]  # fmt: skip

KEY, SECRET = "hepcache-writer", "the-secret-of-a-server-on-this-machine"
BUCKET = "hep"

_PROGRAMS = ("monmaptool", "ceph", "ceph-mon", "ceph-osd")
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
osd memory target = 939524096
osd max object name len = 256
"""
_ON_DISK = """\
osd objectstore = bluestore
bluestore block path = {home}/block
bluestore block create = true
bluestore block size = 2147483648
"""
_IN_MEMORY = """\
osd objectstore = memstore
memstore device bytes = 4294967296
"""


@dataclass
class Daemon:
    """A process that can be killed and started again.

    Attributes
    ----------
    command
        The program and its arguments.
    log
        Where it writes what it says.
    environment
        Variables besides those of this process.
    """

    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start the process."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **self.environment}, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End the process at once, wherever it is; safe to call again."""
        if not hasattr(self, "process"):
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait(timeout=30)


class Gateway(Daemon):
    """versitygw: S3 over a directory.

    Parameters
    ----------
    home
        An empty directory.
    program
        The executable.
    """

    def __init__(self, home: Path, program: str) -> None:
        self.files, self.port = home / "files", free_port()
        (self.files / BUCKET).mkdir(parents=True)
        super().__init__(
            [program, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(self.files)],
            home / "gateway.log",
            {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        )

    def start(self) -> None:
        """Start the gateway, and wait until it answers."""
        super().start()
        wait_for(self.answers, "the S3 gateway's start")

    def answers(self) -> bool:
        """Tell whether its port is open.

        Raises
        ------
        ClusterError
            It has ended; the message holds its last words.
        """
        if self.process.poll() is not None:
            raise ClusterError(f"versitygw does not start: {self.log.read_text()[-1000:]}")
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def uri(self, path: str, port: int | None = None) -> str:
        """Return the URI of a place in the bucket."""
        return f"ntpl+s3+http://127.0.0.1:{port or self.port}/{BUCKET}/{path}"


class Ceph:
    """One monitor and one OSD, with pool ``hep``, without authentication.

    Parameters
    ----------
    home
        An empty directory with a short path: sockets have no long ones.
    in_memory
        Whether objects are lost when the OSD is killed.
    """

    def __init__(self, home: Path, *, in_memory: bool = False) -> None:
        self.home, self.conf = home, home / "ceph.conf"
        fsid, port = str(uuid.uuid4()), free_port()
        text = _CEPH + (_IN_MEMORY if in_memory else _ON_DISK)
        self.conf.write_text(text.format(fsid=fsid, port=port, home=home))
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
        self._wait_for_osd()

    def restart_osd(self) -> None:
        """Kill the OSD, start it anew, and wait until the monitor knows it again."""
        self.osd.kill()
        # Else the monitor takes the one that is dead for the new one.
        self._run("ceph", "osd", "down", "0")
        self.osd.start()
        self._wait_for_osd()

    def _wait_for_osd(self) -> None:
        for patience_s in (20, 20, 60):
            try:
                wait_for(self._up, "the OSD", patience_s)
            except ClusterError:
                # On a busy machine one may miss the map that it waits for.
                if patience_s == 60:
                    raise
                self.osd.kill()
                self.osd.start()
            else:
                return

    def _up(self) -> bool:
        return "1 up" in self._run("ceph", "osd", "stat")

    def uri(self, path: str, more: str = "") -> str:
        """Return the URI of a place in the pool."""
        return f"rados://hep/{path}?conf={self.conf}{more}"

    def close(self) -> None:
        """End both processes."""
        self.osd.kill()
        self.monitor.kill()

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, *([] if program == "monmaptool" else ["-c", str(self.conf)])]
        # On a busy machine the monitor may refuse to say what commands it has.
        for pause_s in (2, 5, None) if program == "ceph" else (None,):
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, timeout=120, check=False
            )
            if not done.returncode:
                return done.stdout
            if pause_s is not None:
                time.sleep(pause_s)
        raise ClusterError(f"{program} {' '.join(arguments)}: {done.stderr[-1000:]}")


def find_gateway() -> str | None:
    """Return the versitygw of this machine: on the path, or where Go installs programs."""
    places = [os.environ.get("PATH", ""), str(Path.home() / "go" / "bin")]
    if gopath := os.environ.get("GOPATH"):
        places.append(str(Path(gopath) / "bin"))
    return shutil.which("versitygw", path=os.pathsep.join(places))


def missing_for_s3() -> str | None:
    """Return what to install before an S3 service can be started; ``None`` for nothing."""
    if find_gateway() is None:
        return (
            "there is no versitygw: say "
            "'go install github.com/versity/versitygw/cmd/versitygw@latest'"
        )
    return None


def missing_for_ceph() -> str | None:
    """Return what to install before Ceph can be started; ``None`` for nothing."""
    if missing := [one for one in _PROGRAMS if shutil.which(one) is None]:
        return (
            f"there is no {missing[0]}: as root, say "
            "'apt-get install ceph-mon ceph-osd ceph-common librados2'"
        )
    return None


@contextmanager
def gateway_running() -> Iterator[str]:
    """Run an S3 service, whose credentials are in the environment meanwhile; yield its URI."""
    program, names = find_gateway(), {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    if program is None:
        raise ClusterError(missing_for_s3() or "")
    before = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(prefix="hepcache-s3-") as home:
        gateway = Gateway(Path(home), program)
        os.environ.update(names)
        try:
            gateway.start()
            yield gateway.uri("bench")
        finally:
            gateway.kill()
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


@contextmanager
def ceph_running() -> Iterator[str]:
    """Run a Ceph that keeps its objects in memory; yield the URI of a place in its pool."""
    # Sockets have short paths only.
    with tempfile.TemporaryDirectory(prefix="hepcache-ceph-") as home:
        ceph = Ceph(Path(home), in_memory=True)
        try:
            yield ceph.uri("bench")
        finally:
            ceph.close()


def wait_for(ready: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait for something outside of this process, that gives no sign of its own.

    Raises
    ------
    ClusterError
        It did not come in time.
    """
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise ClusterError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
