from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from hepcache.catalogue.catalogue import Catalogue
from hepcache.doctor import facts


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_can_be_tried(tmp_path: Path) -> None:
    trial = facts.try_files(tmp_path)
    assert trial.locks_error is None
    assert trial.maps_error is None
    assert trial.written_s == pytest.approx(trial.now_s, abs=2)
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_written_is_said() -> None:
    trial = facts.try_files(Path("/proc"))
    assert trial.written_s is None
    assert trial.locks_error is not None
    assert "/proc" in trial.locks_error


def test_the_first_parent_that_is_there(tmp_path: Path) -> None:
    assert facts.existing(tmp_path / "a/b/c") == tmp_path
    assert facts.existing(tmp_path) == tmp_path


def test_the_directory_is_judged_as_the_cache_judges_it(tmp_path: Path) -> None:
    directory = tmp_path / "columns"
    assert facts.directory_problem(directory, group=False) == ""
    assert not directory.exists()
    directory.mkdir(mode=0o700)
    assert facts.directory_problem(directory, group=False) == ""
    directory.chmod(0o777)
    assert "mode 0777" in facts.directory_problem(directory, group=False)
    assert "can't be made" in facts.directory_problem(Path("/proc/no/columns"), group=False)


def test_the_catalogue_is_tried_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "catalogue.sqlite"
    assert facts.catalogue_problem(path) == ""
    assert not path.parent.exists()
    with Catalogue(path):
        assert facts.catalogue_problem(path) == ""
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert facts.catalogue_problem(path) == ""  # busy, hence writable
    writer.close()
    garbage = write(tmp_path / "garbage.sqlite", "no database at all" * 100)
    assert "not a database" in facts.catalogue_problem(garbage)
    assert garbage.read_text().startswith("no database")
    assert "can't be made" in facts.catalogue_problem(Path("/proc/no/catalogue.sqlite"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_catalogue_that_is_read_only(tmp_path: Path) -> None:
    with Catalogue(tmp_path / "catalogue.sqlite"):
        pass
    (tmp_path / "catalogue.sqlite").chmod(0o400)
    assert "readonly" in facts.catalogue_problem(tmp_path / "catalogue.sqlite")


def test_the_clock_can_be_asked() -> None:
    assert facts.clock_synchronised() in (True, False, None)


def test_processes_are_found_by_name(tmp_path: Path) -> None:
    write(tmp_path / "12/comm", "cachefilesd\n")
    write(tmp_path / "self/comm", "other\n")
    assert facts.running(tmp_path, "cachefilesd")
    assert not facts.running(tmp_path, "other")
    own = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert facts.running(Path("/proc"), own)


def test_modules_are_found_wherever_they_are(tmp_path: Path) -> None:
    assert facts.module_state(tmp_path, "cachefiles") == "unknown"
    write(tmp_path / "proc/sys/kernel/osrelease", "6.12.1\n")
    modules = tmp_path / "lib/modules/6.12.1"
    write(modules / "modules.dep", "kernel/fs/netfs/netfs.ko.xz:\n")
    assert facts.module_state(tmp_path, "cachefiles") == "missing"
    write(modules / "modules.dep", "kernel/fs/cachefiles/cachefiles.ko.xz: kernel/fs/n/n.ko.xz\n")
    assert facts.module_state(tmp_path, "cachefiles") == "loadable"
    write(modules / "modules.builtin", "kernel/fs/cachefiles/cachefiles.ko\n")
    assert facts.module_state(tmp_path, "cachefiles") == "built in"
    write(tmp_path / "proc/modules", "cachefiles 176128 1 - Live 0x0\nnetfs 1 2 - Live 0x0\n")
    assert facts.module_state(tmp_path, "cachefiles") == "loaded"


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ('ID=ubuntu\nID_LIKE=debian\n', "debian"),
        ("ID=debian\n", "debian"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', "redhat"),
        ("ID=arch\n", "other"),
        ("", "other"),
    ],
)  # fmt: skip
def test_families(tmp_path: Path, text: str, family: str) -> None:
    write(tmp_path / "etc/os-release", text)
    assert facts.family(tmp_path) == family


def test_where_cachefilesd_keeps_files(tmp_path: Path) -> None:
    assert facts.fscache_directory(tmp_path) == Path("/var/cache/fscache")
    write(tmp_path / "etc/cachefilesd.conf", "# dir /no\ndir /ssd/fscache\ntag mycache\n")
    assert facts.fscache_directory(tmp_path) == Path("/ssd/fscache")
