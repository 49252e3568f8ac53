from __future__ import annotations

from pathlib import Path

import htcondor2
import pytest
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.cli.options import scaled
from hepcache.errors import ClusterError, ConfigurationError


class Asked:
    """Keeps what it is asked for, in the place of a cluster of a pool."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def scale(self, jobs: int) -> None:
        self.calls.append(jobs)

    def scale_hosts(self, hosts: dict[str, int]) -> None:
        self.calls.append(hosts)

    def wait_for_workers(self, number: int) -> None:
        self.calls.append(number)


def test_an_option_means_jobs_or_machines() -> None:
    asked = Asked()
    scaled(asked, "8")
    scaled(asked, "big-*=16, small-1=4")
    assert asked.calls == [8, 1, {"big-*": 16, "small-1": 4}, 1]
    for wrong in ("0", "many", "w1=", "w1=2,w2"):
        with pytest.raises(ConfigurationError, match="--condor"):
            scaled(asked, wrong)


def test_the_script_is_printed(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = CliRunner().invoke(app, ["cluster", "script", "--memory", "3GB"])
    assert found.exit_code == 0, found.output
    assert "MY.DaskWorkerMemory = 3000000000" in found.output


def test_a_machine_outside_of_any_pool() -> None:
    htcondor2.param["COLLECTOR_HOST"] = "127.0.0.1:1"
    try:
        found = CliRunner().invoke(app, ["cluster", "pool"])
    finally:
        del htcondor2.param["COLLECTOR_HOST"]
    assert isinstance(found.exception, ClusterError)
    assert "condor_status" in str(found.exception)


def test_certificates_are_written_for_every_role_and_only_once(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    found = CliRunner().invoke(app, ["cluster", "certificates", str(directory)])
    assert found.exit_code == 0
    written = sorted(str(one) for one in directory.rglob("*") if one.is_file())
    assert sorted(found.output.split()) == written
    assert len(written) == 9
    assert all(Path(one).stat().st_mode & 0o777 == 0o600 for one in written)
    authorities = {one.read_text() for one in directory.rglob("hepcache-ca.pem")}
    assert len(authorities) == 1
    again = CliRunner().invoke(app, ["cluster", "certificates", str(directory)])
    assert again.exit_code != 0
