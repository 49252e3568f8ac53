"""Hosts in network namespaces, joined by a switch, each behind a link of a given rate.

A link is a token bucket (``tc tbf``) in both directions, because not every
kernel has netem. Names and addresses belong to this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self


class Network:
    """A switch and its hosts; a context manager that takes them all away."""

    def __init__(self) -> None:
        self._name = f"hc{os.getpid() % 100000}"
        self._switch = f"{self._name}-switch"
        self._hosts: dict[str, str] = {}
        self._running: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def check(self) -> str | None:
        """Make the switch; return what does not work here."""
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "sw", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "sw", "up")
            self.host("probe", "1mbit")
        except subprocess.CalledProcessError as error:
            return f"{' '.join(error.cmd)}: {error.stderr.strip()}"
        return None

    def host(self, name: str, rate: str | None = None) -> str:
        """Return a host's address; make it where it is new, behind a link of this rate."""
        if name not in self._hosts:
            number = len(self._hosts) + 1
            self._hosts[name] = f"10.213.7.{number}"
            space, port = self._space(name), f"p{number}"
            _ip("netns", "add", space)
            _ip("-n", self._switch, "link", "add", port, "type", "veth",
                "peer", "name", "eth0", "netns", space)  # fmt: skip
            _ip("-n", self._switch, "link", "set", port, "master", "sw", "up")
            _ip("-n", space, "addr", "add", f"{self._hosts[name]}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            if rate is not None:
                self.shape(name, rate)
        return self._hosts[name]

    def shape(self, name: str, rate: str) -> None:
        """Give a host's link another rate, such as ``10mbit``, both ways."""
        port = f"p{list(self._hosts).index(name) + 1}"
        for space, device in ((self._switch, port), (self._space(name), "eth0")):
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf",
                 "rate", rate, "burst", "64kb", "latency", "50ms")  # fmt: skip

    def cut(self, name: str) -> None:
        """Let a host's link carry nothing any more, and nobody be told."""
        port = f"p{list(self._hosts).index(name) + 1}"
        _ip("-n", self._switch, "link", "set", port, "down")

    def join(self, name: str) -> None:
        """Let a link that was cut carry again."""
        port = f"p{list(self._hosts).index(name) + 1}"
        _ip("-n", self._switch, "link", "set", port, "up")

    def start(
        self, host: str, command: Sequence[str], environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:  # fmt: skip
        """Start a command on a host, in a process group of its own."""
        process = subprocess.Popen(
            self._inside(host, command), env={**os.environ, **(environment or {})}, text=True,
            start_new_session=True, **options,
        )  # fmt: skip
        self._running.append(process)
        return process

    def run(
        self, host: str, command: Sequence[str], environment: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a command on a host to its end."""
        return subprocess.run(
            self._inside(host, command), env={**os.environ, **(environment or {})}, text=True,
            capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip

    def stop(self, process: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> None:
        """End what :meth:`start` started, children included."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        if process in self._running:
            self._running.remove(process)

    def __exit__(self, *_: object) -> None:
        for process in list(self._running):
            self.stop(process, signal.SIGKILL)
        for space in [*map(self._space, self._hosts), self._switch]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def _space(self, name: str) -> str:
        return f"{self._name}-{name}"

    def _inside(self, host: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._space(host), *command]


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
