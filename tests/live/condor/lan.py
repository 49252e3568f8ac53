"""Hosts on one machine: namespaces over one Debian tree, joined by a bridge."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
USER, USER_ID, GROUP_ID = "analyst", 2000, 2000
DOMAIN = "pool.test"
# Where hosts have the programs of this environment, wherever it is outside.
PROGRAMS = "/opt/hepcache/bin"


def wait_until(check: Callable[[], object], *, timeout_s: float, what: str) -> None:
    """Look until something is so; the only place where these tests wait."""
    until = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.2)


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run(
        [os.fspath(one) for one in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr or done.stdout}")
    return done.stdout


def build_base(base: Path) -> None:
    """Make a Debian tree with HTCondor, once."""
    if (base / "etc/condor").is_dir() and (base / ".complete").exists():
        return
    # One that was broken off leaves a mount, on which every later one would fail.
    subprocess.run(["umount", "--quiet", base / "proc"], capture_output=True, check=False)
    shutil.rmtree(base, ignore_errors=True)
    base.parent.mkdir(parents=True, exist_ok=True)
    without = [f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in ("man", "doc", "locale")]
    run(
        "mmdebstrap", "--mode=root", "--variant=minbase", "--include=condor,iproute2,procps",
        '--aptopt=Apt::Install-Recommends "false"', *without, "trixie", base,
    )  # fmt: skip
    run(
        "chroot", base, "useradd", "-M", "-u", str(USER_ID), "-d", f"/home/{USER}",
        "-s", "/bin/bash", USER,
    )  # fmt: skip
    (base / ".complete").touch()


@dataclass
class Host:
    """One host: its own network, mounts, processes and name."""

    name: str
    ip: str
    directory: Path
    process: subprocess.Popen[bytes]
    veth: str

    @property
    def pid(self) -> int:
        """The host's first process."""
        found = run("pgrep", "-P", str(self.process.pid)).split()
        return int(found[0])

    def command(self, user: str, *command: str) -> list[str]:
        """Return the command that runs another one in here."""
        uid, gid, home = (
            (0, 0, "/root") if user == "root" else (USER_ID, GROUP_ID, f"/home/{USER}")
        )
        return [
            "nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-r",
            "setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups",
            "env", "-i", "-C", home, f"HOME={home}", f"USER={user}", f"LOGNAME={user}",
            "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", *command,
        ]  # fmt: skip

    def run(self, user: str, *command: str) -> str:
        return run(*self.command(user, *command))

    def kill_process(self, name: str) -> None:
        """Kill processes of a name, in here only."""
        self.run("root", "pkill", "-KILL", "-x", name)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, RuntimeError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(30)
        subprocess.run(["ip", "link", "del", self.veth], capture_output=True, check=False)


@dataclass
class Lan:
    """A bridge and the hosts on it."""

    base: Path
    state: Path
    names: Sequence[str]
    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tag = f"{os.getpid() % 0xFFFF:04x}"
        self.bridge, self.net = (
            f"hcb{self.tag}",
            f"10.{77 + os.getpid() % 100}.{os.getpid() % 251}",
        )
        self.state.mkdir(parents=True)
        home = self.state / "home" / USER
        home.mkdir(parents=True)
        os.chown(home, USER_ID, GROUP_ID)
        (self.state / "pool-key").write_bytes(secrets.token_bytes(64))
        shutil.copytree(REPOSITORY / "condor/bin", self.state / "bin")
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.ip(name)} {name}.{DOMAIN} {name}" for name in self.names]
        (self.state / "hosts").write_text("\n".join(lines) + "\n")
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")

    @property
    def home(self) -> Path:
        """The user's home, which all hosts share."""
        return self.state / "home" / USER

    def ip(self, name: str) -> str:
        return f"{self.net}.{10 + list(self.names).index(name)}"

    def add(self, name: str, config: dict[str, str]) -> Host:
        """Start a host with configuration files of HTCondor."""
        directory = self.state / name
        (directory / "config.d").mkdir(parents=True)
        for one in ("root", "upper"):
            (directory / one).mkdir()
        for file, text in config.items():
            (directory / "config.d" / file).write_text(text)
        bound = {str(REPOSITORY), sys.base_prefix, str(Path(sys.prefix))}
        bound.add(f"{Path(sys.prefix)}={Path(PROGRAMS).parent}")
        env = {"NAME": name, "IP": self.ip(name), "BASE": self.base, "BIND": " ".join(bound)}
        (directory / "env").write_text("".join(f"{k}='{v}'\n" for k, v in env.items()))
        with (directory / "console").open("wb") as console:
            process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork",
                 "--kill-child", "bash", str(HERE / "host-init.sh"), str(directory)],
                stdout=console, stderr=console, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        veth = f"h{self.tag}{len(self.hosts)}"
        host = Host(name, self.ip(name), directory, process, veth)
        self.hosts[name] = host
        own = Path("/proc/self/ns/net").readlink()

        def apart() -> bool:
            try:
                return Path(f"/proc/{host.pid}/ns/net").readlink() != own
            except (RuntimeError, OSError, IndexError):
                return False

        try:
            wait_until(apart, timeout_s=60, what=f"namespaces of {name}")
            run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns",
                str(host.pid))  # fmt: skip
            run("ip", "link", "set", veth, "master", self.bridge, "up")
            ready = directory / "ready"
            wait_until(ready.exists, timeout_s=120, what=f"start of {name}")
        except (TimeoutError, RuntimeError) as error:
            raise RuntimeError(f"{error}: {(directory / 'console').read_text()}") from error
        return host

    def end(self) -> None:
        for host in self.hosts.values():
            host.end()
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)
        shutil.rmtree(self.state, ignore_errors=True)
