from __future__ import annotations

from pathlib import Path

import pytest

from hepcache.doctor.machine import check_catalogue, check_clock, check_open_files

DAY_S = 86_400.0
NOW_S = 1.8e9


@pytest.mark.parametrize(
    ("soft", "hard", "status", "fix"),
    [
        (-1, -1, "good", ""),
        (65_536, 65_536, "good", ""),
        (1024, 524_288, "good", "ulimit -n 4096"),
        (256, 524_288, "wrong", "ulimit -n 4096"),
        (256, -1, "wrong", "ulimit -n 4096"),
        (256, 1024, "wrong", "echo '* hard nofile 4096' | sudo tee -a /etc/security/limits.d/"),
    ],
)
def test_open_files(soft: int, hard: int, status: str, fix: str) -> None:
    found = check_open_files(soft, hard)
    assert found.status == status
    assert found.fix.startswith(fix)
    assert bool(found.fix) == bool(fix)


@pytest.mark.parametrize(
    ("written_s", "installed_s", "synchronised", "status", "says"),
    [
        (NOW_S, NOW_S - DAY_S, True, "good", "synchronised"),
        (None, NOW_S - DAY_S, True, "good", "2027-01-15 08:00 UTC"),
        (NOW_S, NOW_S - DAY_S, False, "warning", "not synchronised"),
        (NOW_S, NOW_S - DAY_S, None, "unknown", "doesn't say"),
        (NOW_S + 90, NOW_S - DAY_S, True, "warning", "+90.0 s"),
        (NOW_S - 90, NOW_S - DAY_S, True, "warning", "-90.0 s"),
        (NOW_S, NOW_S + 3600, True, "good", "synchronised"),
        (NOW_S, NOW_S + 30 * DAY_S, True, "wrong", "before hepcache was installed"),
    ],
)
def test_clock(
    written_s: float | None,
    installed_s: float,
    synchronised: bool | None,
    status: str,
    says: str,
) -> None:
    found = check_clock(NOW_S, written_s, installed_s, synchronised)
    assert found.status == status
    assert says in found.observation
    assert (found.fix == "sudo timedatectl set-ntp true") == (status in ("warning", "wrong"))


def test_catalogue() -> None:
    path = Path("/home/u/catalogue.sqlite")
    good = check_catalogue(path, "", exists=True, local=True)
    shared = check_catalogue(path, "", exists=True, local=False)
    new = check_catalogue(path, "", exists=False, local=True)
    bad = check_catalogue(path, "readonly database", exists=True, local=True)
    assert [one.status for one in (good, shared, new, bad)] == ["good", "good", "good", "wrong"]
    assert "file server" in shared.observation
    assert "will be made" in new.observation
    assert "DASK_HEPCACHE__CATALOGUE" in bad.fix
