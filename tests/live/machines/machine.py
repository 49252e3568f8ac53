"""Virtual machines in software emulation: Debian with its own kernel."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from ..condor.lan import REPOSITORY, run, wait_until

HERE = Path(__file__).parent
PACKAGES = (
    "linux-image-cloud-amd64", "systemd-sysv", "udev", "iproute2", "openssh-server", "python3",
    "python3-apt", "nfs-kernel-server", "nfs-common", "cachefilesd", "kmod", "e2fsprogs", "dbus",
    "sudo", "acl", "systemd-timesyncd",
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build_image(directory: Path) -> None:
    """Make a bootable image with the packages that the roles ask for, once."""
    if (directory / ".complete").exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tree = directory / "tree"
    without = [f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in ("man", "doc", "locale")]
    run(
        "mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}",
        *without, "trixie", tree,
    )  # fmt: skip
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key")
    (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(directory / "key.pub", tree / "root/.ssh/authorized_keys")
    (tree / "etc/systemd/system/testnet.service").write_text(
        "[Unit]\nBefore=network-online.target ssh.service\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/local/sbin/testnet\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    shutil.copy(HERE / "testnet.sh", tree / "usr/local/sbin/testnet")
    (tree / "usr/local/sbin/testnet").chmod(0o755)
    run("chroot", tree, "systemctl", "enable", "testnet.service", "ssh.service")
    # Roles start what they need.
    run("chroot", tree, "systemctl", "disable", "nfs-server.service", "cachefilesd.service")
    (tree / "etc/fstab").write_text("")
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copy(next((tree / "boot").glob(pattern)), directory / name)
    with (directory / "root.img").open("wb") as image:
        image.truncate(3 << 30)
    run("mkfs.ext4", "-q", "-d", tree, directory / "root.img")
    shutil.rmtree(tree)
    (directory / ".complete").touch()


# What a worker doesn't use, and what would take as long to copy as all the rest.
_UNUSED = (
    "ansible*", "babel", "htcondor*", "mypy*", "pip", "ruff*", "sphinx*", "test", "uv*",
    "jedi", "hdf5plugin*", "h5py*", "pandas", "matplotlib*",
)  # fmt: skip


def build_software(directory: Path) -> Path:
    """Make an image with this Python and this environment, at their paths on this machine."""
    tree, image = directory / "software", directory / "software.img"
    shutil.rmtree(tree, ignore_errors=True)
    base, prefix = Path(sys.base_prefix), Path(sys.prefix)
    packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

    def unused(path: str, names: list[str]) -> set[str]:
        if path == str(base / packages):
            return set(names)
        patterns = (
            _UNUSED if path in (str(prefix / packages), str(base / "lib/python3.11")) else ()
        )
        return {name for name in names if any(fnmatch(name, one) for one in patterns)}

    def link(source: str, target: str) -> str:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # on another volume
            shutil.copy2(source, target, follow_symlinks=False)
        return target

    for path in (base, prefix, REPOSITORY / "src"):
        target = tree / path.relative_to("/")
        shutil.copytree(path, target, symlinks=True, ignore=unused, copy_function=link)
    with image.open("wb") as file:
        file.truncate(4 << 30)
    run("mkfs.ext4", "-q", "-L", "software", "-d", tree, image)
    shutil.rmtree(tree)
    return image


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
        More images, written to a copy.
    """

    name: str
    address: str
    base: Path
    state: Path
    link: str
    memory: str = "1G"
    processors: int = 1
    disks: tuple[Path, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it; see :meth:`wait`."""
        last = self.address.split("/")[0].rpartition(".")[2]
        drives = []
        for image in (self.base / "root.img", *self.disks):
            kept = "on" if image.parent == self.base else "off"
            drives += ["-drive", f"file={image},if=virtio,format=raw,snapshot={kept}"]
        kernel = "console=ttyS0 panic=-1 root=/dev/vda rw quiet net.ifnames=0 "
        kernel += "systemd.mask=serial-getty@ttyS0.service systemd.mask=dev-ttyS0.device "
        kernel += f"systemd.hostname={self.name} testip={self.address}"
        self.console = self.state / f"{self.name}.console"
        with self.console.open("wb") as console:
            self.process = subprocess.Popen(
                ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max",
                 "-m", self.memory, "-smp", str(self.processors), "-display", "none",
                 "-serial", "stdio", "-monitor", "none", "-no-reboot",
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
            wait_until(there, timeout_s=240, what=f"boot of {self.name}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.console.read_text()[-3000:]}") from error

    def run(self, command: str) -> str:
        """Run a shell's command as root."""
        return run("ssh", *self.ssh_options, "-p", str(self.port), "root@127.0.0.1", command)

    def send(self, source: Path, target: str) -> None:
        """Copy a file into the guest."""
        run("scp", "-q", *self.ssh_options, "-P", str(self.port), source,
            f"root@127.0.0.1:{target}")  # fmt: skip

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
