"""A hundred rounds of two puts at once, with kills, on every kind of store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.objectstore.servers import KEY, SECRET, Ceph, Gateway
from tests.rntuple.rounds import play, write_numbers

pytestmark = pytest.mark.timeout(1800)

ROUNDS = 100


@pytest.fixture(params=["directory", "s3", "rados"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    if request.param == "directory":
        return f"ntpl+file://{tmp_path}/events"
    fixture = {"s3": "gateway", "rados": "ceph"}[request.param]
    server: Gateway | Ceph = request.getfixturevalue(fixture)
    return server.uri(f"{tmp_path.name}/events")


def test_two_puts_at_once_leave_one_whole_ntuple(uri: str, tmp_path: Path) -> None:
    seconds = 0.1 if uri.startswith("ntpl+file") else 0.3  # about as long as a put takes
    outcomes = play(uri, write_numbers(tmp_path), ROUNDS, seconds)
    print(dict(outcomes))
    assert outcomes["won"] > ROUNDS // 2
    assert outcomes["lost"] > ROUNDS // 20
    assert outcomes["killed"] > ROUNDS // 20
