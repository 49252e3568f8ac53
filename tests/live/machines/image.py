"""What the virtual machines boot from: a Debian with its kernel, and a disk with hepcache."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from ..condor.lan import REPOSITORY, run

HERE = Path(__file__).parent
# What the roles ask for is installed beforehand: emulated, that would take longer than all else.
PACKAGES = (
    "linux-image-cloud-amd64", "systemd-sysv", "udev", "iproute2", "openssh-server", "python3",
    "python3-apt", "nfs-kernel-server", "nfs-common", "cachefilesd", "kmod", "e2fsprogs", "dbus",
    "sudo", "acl", "systemd-timesyncd", "condor",
)  # fmt: skip
# Roles start what they need.
STOPPED = ("nfs-server.service", "cachefilesd.service", "condor.service", "rpcbind.service")
HOSTS = (
    "127.0.0.1 localhost\n10.99.0.1 server.pool.test server\n10.99.0.2 worker.pool.test worker\n"
)


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
        '--aptopt=Apt::Install-Recommends "false"', *without, "trixie", tree,
    )  # fmt: skip
    finish_image(directory, tree)
    (directory / ".complete").touch()


def finish_image(directory: Path, tree: Path) -> None:
    """Let the test log in, and make an image of the tree."""
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
    run("chroot", tree, "systemctl", "disable", *STOPPED)
    (tree / "etc/hosts").write_text(HOSTS)
    # HTCondor would measure the speed of the emulation for minutes, and try its plugins.
    (tree / "etc/condor/config.d/90-test.config").write_text(
        "RunBenchmarks = False\nENABLE_URL_TRANSFERS = False\n"
    )
    (tree / "etc/fstab").write_text("")
    for name, pattern in (("vmlinuz", "vmlinuz-*"), ("initrd", "initrd.img-*")):
        shutil.copy(next((tree / "boot").glob(pattern)), directory / name)
    with (directory / "root.img").open("wb") as image:
        image.truncate(3 << 30)
    run("mkfs.ext4", "-q", "-d", tree, directory / "root.img")


def build_software(image: Path, script: Path, *arguments: str) -> None:
    """Make an image with this Python and what a script of its imports, at their paths here.

    The whole environment would take longer to copy than to use.
    """
    # Emulated, to compile what is imported would take longer than all else.
    compiling = {key: value for key, value in os.environ.items() if "BYTECODE" not in key}
    said = run(Path(sys.prefix) / "bin/python", script, *arguments, env=compiling)
    imported = [Path(one) for one in json.loads(said.splitlines()[-1])["imported"]]
    tree, prefix = image.with_suffix(".tree"), Path(sys.prefix)
    shutil.rmtree(tree, ignore_errors=True)
    packages = next(prefix.glob("lib/python3*/site-packages"))
    wanted = {packages / one.relative_to(packages).parts[0]
              for one in imported if one.is_relative_to(packages)}  # fmt: skip
    # Their shared libraries, their entry points and versions, and where hepcache itself is.
    for pattern in ("*.libs", "*.dist-info", "*.pth", "_editable*"):
        wanted.update(packages.glob(pattern))
    wanted |= {prefix / "pyvenv.cfg", prefix / "bin/hepcache"}
    wanted |= {REPOSITORY / "src", REPOSITORY / "benchmarks"}
    wanted.update(prefix.glob("bin/python*"))
    base = Path(sys.base_prefix)
    wanted |= {base / "bin", next(base.glob("lib/python3*")), *base.glob("lib/libpython*.so*")}
    for one in sorted(wanted):
        _link(one, tree / one.relative_to("/"))
    with image.open("wb") as file:
        file.truncate(3 << 30)
    run("mkfs.ext4", "-q", "-L", "software", "-d", tree, image)
    shutil.rmtree(tree)


def _link(source: Path, target: Path) -> None:
    """Copy a file or a directory, by links where that can be."""

    def link(one: str, other: str) -> str:
        try:
            os.link(one, other, follow_symlinks=False)
        except OSError:  # on another volume
            shutil.copy2(one, other, follow_symlinks=False)
        return other

    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("test", "tests", "site-packages", "config-3*", "*.a")
        shutil.copytree(source, target, symlinks=True, ignore=ignored, copy_function=link,
                        dirs_exist_ok=True)  # fmt: skip
    else:
        link(str(source), str(target))
