"""The roles on what says it is AlmaLinux 9: no guest of that can be had here.

The tree is this machine's, under a release file of AlmaLinux; dnf, rpm, semanage and firewalld are
real. Packages are stand-ins of the same names with units of the same names, so what the real ones
do when they are installed and started isn't seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.conftest import unable

from ..condor.lan import REPOSITORY
from .conftest import PLAYBOOK, recap

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

TAGS = "common,selinux,firewall,nfs,ssd,fscache,condor,hepcache,monitoring"
# What the roles ask of dnf, by their names in AlmaLinux 9, EPEL and HTCondor's repository, each
# with the unit that it has there.
PACKAGES = {
    "acl": "", "chrony": "chronyd", "python3-libselinux": "", "policycoreutils-python-utils": "",
    "firewalld": "firewalld", "nfs-utils": "nfs-server", "e2fsprogs": "", "quota": "",
    "cachefilesd": "cachefilesd", "condor": "condor",
}  # fmt: skip


UNIT = "[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n"


def spec() -> str:
    """Return the description of the stand-ins, from which rpmbuild makes them all."""
    about = "Summary: a stand-in\nLicense: none\nAutoReqProv: no\n"
    lines = [f"Name: stand-ins\nVersion: 1\nRelease: 1\nBuildArch: noarch\n{about}%description"]
    # Of the programs, roles call only this one before anything runs.
    build = ["mkdir -p %{buildroot}/usr/lib/systemd/system %{buildroot}/usr/sbin",
             "mkdir -p %{buildroot}/etc/condor/config.d",
             "printf '#!/bin/sh\\n' > %{buildroot}/usr/sbin/exportfs",
             "chmod 755 %{buildroot}/usr/sbin/exportfs"]  # fmt: skip
    for name, unit in PACKAGES.items():
        files = {"nfs-utils": ["/usr/sbin/exportfs"], "condor": ["/etc/condor"]}.get(name, [])
        if unit:
            path = f"/usr/lib/systemd/system/{unit}.service"
            files = [*files, path]
            build.append(f"printf '{UNIT}' > %{{buildroot}}{path}")
        listed = "\n".join(files)
        lines.append(
            f"%package -n {name}\n{about}%description -n {name}\n%files -n {name}\n{listed}\n"
        )
    return "\n".join([*lines, "%install", *build, ""])


def inventory() -> str:
    return f"""
all:
  vars:
    ansible_connection: local
    ansible_become: false
    facility_domain: pool.test
    facility_manager: alma
    facility_nfs_server: alma
    facility_network: 10.99.0.0/24
    condor_roles: [manager, submit, execute]
    condor_pool_key: c2VjcmV0
    hepcache_environment: {sys.prefix}
    ssd_cache_device: /ssd.img
    # Without an SELinux kernel the labels can be said, but not set.
    selinux_managed: true
  children:
    service: {{hosts: {{alma: {{}}}}}}
    nfs_servers: {{hosts: {{alma: {{}}}}}}
    workers: {{hosts: {{alma: {{}}}}}}
"""


@pytest.fixture(scope="module")
def said(
    debian: Callable[..., None], ansible: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Return what was said while and after the roles ran: checked, for real, once more."""
    if os.geteuid() != 0:
        unable("needs root, to change a copy of this machine's tree")
    debian("dnf", "createrepo-c", "rpm", needs="createrepo_c")
    debian("firewalld", needs="firewall-offline-cmd")
    debian("policycoreutils-python-utils", "selinux-policy-default", needs="semanage")
    directory = tmp_path_factory.mktemp("redhat")
    (directory / "given").mkdir()
    (directory / "given/packages.spec").write_text(spec())
    (directory / "given/inventory.yml").write_text(inventory())
    bound = " ".join(dict.fromkeys((sys.base_prefix, str(REPOSITORY))))
    values = {"BIND": bound, "ANSIBLE": ansible, "PLAYBOOK": PLAYBOOK, "TAGS": TAGS}
    (directory / "env").write_text("".join(f"{key}='{value}'\n" for key, value in values.items()))
    plugins = next(ansible.parent.glob("lib/python3*/site-packages/ansible_mitogen"))
    done = subprocess.run(
        ["unshare", "--mount", "bash", Path(__file__).with_name("redhat.sh"), directory],
        env={
            **os.environ, "LC_ALL": "C.UTF-8", "ANSIBLE_STRATEGY": "mitogen_linear",
            "ANSIBLE_STRATEGY_PLUGINS": str(plugins / "plugins/strategy"),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def part(said: str, name: str) -> list[str]:
    return said.partition(f"=== {name}\n")[2].partition("=== ")[0].splitlines()


def test_the_roles_can_be_checked_and_run_and_then_change_nothing(said: str) -> None:
    checked, first, second = (
        recap("PLAY RECAP" + text)["alma"] for text in said.split("PLAY RECAP")[1:]
    )
    assert (checked["failed"], first["failed"], second["failed"]) == (0, 0, 0)
    assert first["changed"] > 20
    assert second["changed"] == 0


def test_dnf_installs_what_is_needed(said: str) -> None:
    assert set(part(said, "rpm")) >= set(PACKAGES) - {"quota"}


def test_units_are_enabled(said: str) -> None:
    wanted = {f"{unit}.service" for unit in PACKAGES.values() if unit}
    assert set(part(said, "enabled")) >= {*wanted, "ssd.mount", "store.mount"}


def test_caches_have_the_labels_of_their_models(said: str) -> None:
    model, ssd_fscache, below, ssd, hepcache, users, script = part(said, "labels")
    assert "cachefiles" in model
    assert ssd_fscache == below == model
    assert ":var_t:" in ssd
    assert ":tmp_t:" in hepcache  # users make directories of their own in it, as in /tmp
    assert users == "<<none>>"  # what they make keeps the label that it is made with
    assert ":bin_t:" in script
    assert any("use_nfs_home_dirs" in line for line in part(said, "local"))
    assert "/ssd" not in "".join(part(said, "removed"))
    assert "secctx system_u:system_r:cachefiles_kernel_t:s0" in part(said, "cachefilesd")


def test_the_facility_has_a_zone_of_its_own(said: str) -> None:
    lines = [line.strip() for line in part(said, "firewall")]
    assert "sources: 10.99.0.0/24" in lines
    assert "services: nfs ssh" in lines
    assert "ports: 1024-65535/tcp" in lines
