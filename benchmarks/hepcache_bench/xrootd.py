"""An XRootD server of this machine, where one is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from hepcache.errors import ClusterError
from hepcache_bench.ports import free_port

__all__ = ["missing_for_xrootd", "xrootd_server"]

_CONFIG = """\
all.export {directory} r/o
all.adminpath {scratch}/admin
all.pidpath {scratch}/admin
xrd.port {port}
xrd.protocol xrootd *
oss.localroot /
"""


def missing_for_xrootd() -> str | None:
    """Return what to install before root:// can be measured; ``None`` for nothing."""
    if shutil.which("xrootd") is None:
        return "there is no XRootD server: as root, say 'apt-get install xrootd-server'"
    if find_spec("XRootD") is None or find_spec("fsspec_xrootd") is None:
        return "there is no XRootD client: say 'pip install hepcache[remote]'"
    return None


@contextmanager
def xrootd_server(directory: Path, scratch: Path) -> Iterator[int]:
    """Serve a directory; yield the server's port.

    Parameters
    ----------
    directory
        The files.
    scratch
        Where the server keeps what it needs.

    Raises
    ------
    ClusterError
        The server does not start; the message holds its last words.
    """
    home = scratch / "xrootd"
    home.mkdir()
    port = free_port()
    config = home / "xrootd.cfg"
    config.write_text(_CONFIG.format(directory=directory, scratch=home, port=port))
    options = ["-c", os.fspath(config), "-l", os.fspath(home / "log"), "-n", "bench"]
    if os.geteuid() == 0:
        # It refuses to run as root.
        user = _ordinary_user()
        for place in (scratch, home, *home.iterdir()):
            shutil.chown(place, user)
        options += ["-R", user]
    with subprocess.Popen(
        [shutil.which("xrootd") or "xrootd", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _wait(process, port, home)
            yield port
        finally:
            process.terminate()


def _ordinary_user() -> str:
    for name in ("xrootd", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ClusterError("there is neither a user xrootd nor nobody to run the server as")


def _wait(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            break
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    logs = sorted(home.rglob("log"))
    last = logs[0].read_text(errors="replace")[-500:] if logs else "nothing was logged"
    raise ClusterError(f"the XRootD server does not start: {last}")
