"""Virtual machines in software emulation: Debian with its own kernel."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from hepcache_bench.ports import free_port

from ..condor.lan import run, wait_until

# What takes longest of a boot in emulation, and changes nothing of what is tested.
MASKED = (
    "serial-getty@ttyS0.service", "dev-ttyS0.device", "systemd-udev-settle.service",
    "systemd-logind.service", "e2scrub_reap.service",
)  # fmt: skip
KERNEL = (
    "console=ttyS0 panic=-1 root=/dev/vda rw quiet net.ifnames=0 "
    "cryptomgr.notests mitigations=off tsc=reliable no_timer_check nokaslr audit=0 lsm=capability "
    + " ".join(f"systemd.mask={one}" for one in MASKED)
)


def listens(port: int) -> bool:
    """Tell whether something listens; to ask it by connecting would take the guest's place."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(
        line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines
    )


@dataclass
class VirtualMachine:
    """One guest.

    Attributes
    ----------
    name, address
        Its name, and its address towards the other guests.
    link
        QEMU's socket that joins the guests: ``listen=`` or ``connect=``.
    disks
        More images; what is written to any goes when the machine does.
    """

    name: str
    address: str
    base: Path
    state: Path
    link: str
    memory: str = "1G"
    disks: tuple[Path, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it; see :meth:`wait`."""
        if self.link.startswith("connect="):
            port = int(self.link.rpartition(":")[2])
            wait_until(lambda: listens(port), timeout_s=60, what="the other guest's socket")
        last = self.address.split("/")[0].rpartition(".")[2]
        drives = []
        for image in (self.base / "root.img", *self.disks):
            drives += ["-drive", f"file={image},if=virtio,format=raw,snapshot=on"]
        kernel = f"{KERNEL} systemd.hostname={self.name} testip={self.address}"
        self.console = self.state / f"{self.name}.console"
        with self.console.open("wb") as console:
            self.process = subprocess.Popen(
                # A plain processor is emulated faster than one with all its extensions.
                ["qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem",
                 "-m", self.memory, "-smp", "1", "-nodefaults", "-display", "none",
                 "-chardev", "stdio,id=c0", "-serial", "chardev:c0", "-no-reboot",
                 "-kernel", str(self.base / "vmlinuz"), "-initrd", str(self.base / "initrd"),
                 "-append", kernel,
                 *drives,
                 "-netdev", f"user,id=n0,hostfwd=tcp:127.0.0.1:{self.port}-:22",
                 "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:00:00:{int(last):02x}",
                 "-netdev", f"socket,id=n1,{self.link}",
                 "-device", f"virtio-net-pci,netdev=n1,mac=52:54:00:00:01:{int(last):02x}",
                 "-device", "virtio-rng-pci"],
                stdout=console, stderr=console, stdin=subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": str(self.state)},
            )  # fmt: skip

    @property
    def ssh_options(self) -> list[str]:
        return [
            "-i", str(self.base / "key"), "-o", "StrictHostKeyChecking=no",
            "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", "ConnectTimeout=20", "-o", "BatchMode=yes",
        ]  # fmt: skip

    def wait(self) -> None:
        """Wait until it can be logged in to."""

        def there() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} has ended: {self.console.read_text()[-3000:]}")
            try:
                return self.run("true") == ""
            except RuntimeError:
                return False

        try:
            wait_until(there, timeout_s=900, what=f"boot of {self.name}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.console.read_text()[-3000:]}") from error

    def run(self, command: str) -> str:
        """Run a shell's command as root."""
        return run("ssh", *self.ssh_options, "-p", str(self.port), "root@127.0.0.1", command)

    def send(self, source: Path, target: str) -> None:
        """Copy a file into the guest."""
        with source.open("rb") as data:
            run("ssh", *self.ssh_options, "-p", str(self.port), "root@127.0.0.1",
                f"cat > {target}", stdin=data)  # fmt: skip

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
