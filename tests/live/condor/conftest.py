"""A real HTCondor pool on this machine: a manager that is also the submit host, three workers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from tests.live.conftest import prepare_for_guests, unable

from .lan import DOMAIN, GROUP_ID, REPOSITORY, USER, USER_ID, Host, Lan, build_base, wait_until

WORKERS = ("w1", "w2", "w3")
TOOLS = {
    "mmdebstrap": "mmdebstrap", "ip": "iproute2", "unshare": "util-linux",
    "nsenter": "util-linux", "setpriv": "util-linux", "pgrep": "procps",
}  # fmt: skip

# Quick reactions, and nothing that reaches out of a namespace.
TEST_CONFIG = """
DEFAULT_DOMAIN_NAME = pool.test
ENABLE_IPV6 = False
ENABLE_KERNEL_TUNING = False
BASE_CGROUP =
MOUNT_UNDER_SCRATCH =
RunBenchmarks = False
MAIL = /bin/true
NEGOTIATOR_INTERVAL = 2
NEGOTIATOR_CYCLE_DELAY = 1
SCHEDD_INTERVAL = 3
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
CLASSAD_LIFETIME = 20
MASTER_BACKOFF_CONSTANT = 2
HEPCACHE_CRON_PERIOD = 5s
"""


@pytest.fixture(scope="session")
def machine() -> None:
    """Make sure that this machine can hold hosts."""
    prepare_for_guests(TOOLS)
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        unable(f"no namespaces here: {tried.stderr.strip()}")


def _files(directory: Path, *names: str) -> dict[str, str]:
    return {name: (directory / name).read_text() for name in names}


@pytest.fixture(scope="session")
def lan(machine: None) -> Iterator[Lan]:
    """Return the pool's hosts: cm (manager, submit) and three workers of two slots."""
    base = REPOSITORY / "out/live/condor-base"
    build_base(base)
    state = Path(tempfile.mkdtemp(prefix="hepcache-pool-"))
    state.chmod(0o755)
    lan = Lan(base, state / "lan", ("cm", *WORKERS))
    pool = f"HEPCACHE_MANAGER = cm.{DOMAIN}\nHEPCACHE_DOMAIN = {DOMAIN}\nHEPCACHE_CACHE = /ssd\n"
    ours = REPOSITORY / "condor/config"
    common = {"05-site.config": pool, **_files(ours, "10-hepcache-pool.config")}
    manager = _files(ours, "20-hepcache-manager.config", "20-hepcache-submit.config")
    worker = _files(ours, "20-hepcache-execute.config")
    try:
        for name in lan.names:
            role = manager if name == "cm" else worker
            own = f"NETWORK_INTERFACE = {lan.ip(name)}\nNUM_CPUS = 2\nMEMORY = 4000\n"
            lan.add(name, {**common, **role, "90-test.config": TEST_CONFIG + own})
        cm = lan.hosts["cm"]

        def ready() -> bool:
            try:
                machines = cm.run("root", "condor_status", "-af", "Machine").split()
                cm.run("root", "condor_q")
            except RuntimeError:
                return False
            return len(machines) == len(WORKERS)

        try:
            wait_until(ready, timeout_s=90, what="the pool")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{_logs(lan)}") from error
        token = cm.run("root", "condor_token_create", "-identity", f"{USER}@{DOMAIN}")
        tokens = lan.home / ".condor/tokens.d"
        tokens.mkdir(parents=True)
        (tokens / "pool").write_text(token)
        for path in (lan.home / ".condor", tokens, tokens / "pool"):
            os.chown(path, USER_ID, GROUP_ID)
            path.chmod(0o600 if path.is_file() else 0o700)
        yield lan
    finally:
        lan.end()
        shutil.rmtree(state, ignore_errors=True)


def _logs(lan: Lan) -> str:
    found = []
    for host in lan.hosts.values():
        found.append(f"--- {host.name}: {(host.directory / 'console').read_text()[-2000:]}")
        try:
            found.append(host.run("root", "sh", "-c", "tail -n 25 /var/log/condor/*Log"))
        except RuntimeError as error:
            found.append(str(error))
    return "\n".join(found)


class Submit:
    """A Python process of the user's on the submit host, with a cluster in it."""

    def __init__(self, lan: Lan) -> None:
        self.lan, self.host = lan, lan.hosts["cm"]
        driver = Path(__file__).with_name("driver.py")
        self._errors = (lan.state / "driver.err").open("w+")
        self._process = subprocess.Popen(
            self.host.command(USER, str(Path(sys.prefix) / "bin/python"), str(driver)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def send(self, function: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": function, "with": arguments}) + "\n")
        self._process.stdin.flush()

    def receive(self, timeout_s: float) -> Any:
        try:
            line = self._lines.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError(f"no answer within {timeout_s} s:\n{self.errors()}") from None
        if line is None:
            raise RuntimeError(f"the driver has ended:\n{self.errors()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}\n{self.errors()}")
        return answer["result"]

    def call(self, function: str, timeout_s: float = 120, **arguments: Any) -> Any:
        """Call a function of driver.py there."""
        self.send(function, **arguments)
        return self.receive(timeout_s)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-6000:]

    def end(self) -> None:
        try:
            self.call("close", timeout_s=60)
        finally:
            self._process.kill()
            self._process.wait(30)
            self._reader.join(30)
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                stream.close()


@pytest.fixture(scope="session")
def submit(lan: Lan) -> Iterator[Submit]:
    """Return the submit host, with an HTCondorCluster of three workers on three machines."""
    submit = Submit(lan)
    try:
        submit.call("start", hosts=[f"{name}*" for name in WORKERS], timeout_s=240)
        yield submit
    finally:
        submit.end()


@pytest.fixture
def worker_hosts(lan: Lan) -> dict[str, Host]:
    return {name: lan.hosts[name] for name in WORKERS}
