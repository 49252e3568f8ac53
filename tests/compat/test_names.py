"""Names of files that lead nowhere: one clear error, soon, and without what is secret."""

from __future__ import annotations

import json
import logging
import socket
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from coffea.nanoevents import BaseSchema
from tests.compat.conftest import write_jets

from hepcache import compat
from hepcache.errors import BadFilesetError, IncompleteWarning
from hepcache.fileset import load_fileset
from hepcache.settings import settings

SECRET = "sEcReT7z"


def count(events: Any) -> dict[str, int]:
    return {"n": len(events)}


def run(name: str, *good: Path, **options: Any) -> compat.Runner:
    runner = compat.Runner(compat.IterativeExecutor(status=False), schema=BaseSchema, **options)
    runner({"d": {"files": dict.fromkeys((name, *map(str, good)), "Events")}}, count)
    return runner


def test_an_empty_name_is_refused_for_what_it_is() -> None:
    with pytest.raises(FileNotFoundError, match="it is empty"):
        run("")


@pytest.mark.parametrize(
    "name",
    [
        f"s3://key:{SECRET}@bucket/a.root",
        f"s3://key:{SECRET}@bucket",
        f"s3://key:ab/{SECRET}@bucket/a.root",
        f"s3://key:{SECRET}/ab@bucket/a.root",
        f"s3://key:{SECRET}",
        f"s3:/key:{SECRET}@bucket/a.root",
        f"https://me:ab/{SECRET}@127.0.0.1:9/a.root",
        f"https://me:{SECRET}@127.0.0.1:9/a.root",
        f"root://me:{SECRET}@127.0.0.1:9//a.root",
        f"ntpl+s3://key:ab/{SECRET}@bucket/a",
    ],
)
def test_a_secret_in_a_url_is_never_shown(
    name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by the error, what led to it and its traceback, nor by logs, records and files."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 0)
    with pytest.raises(Exception, match=r"\*\*\*") as caught:
        run(name)
    # Lines of the test itself show no values.
    shown = [*traceback.format_exception(caught.value), repr(caught.value)]
    with pytest.warns(IncompleteWarning) as warned:
        runner = run(name, write_jets(tmp_path / "good.root"), skipbadfiles=(Exception,))
    assert runner.run_record is not None
    shown += [json.dumps(runner.run_record.to_dict()), caplog.text, *capfd.readouterr()]
    shown += [str(warning.message) for warning in warned]
    for path in (settings().catalogue, *settings().cache_directory.rglob("*")):
        if path.is_file():
            shown.append(path.read_bytes().decode("latin-1"))
    for text in shown:
        assert SECRET not in text


def closed_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def test_a_closed_door_is_one_error_within_the_retries_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"root://127.0.0.1:{closed_port()}//data/a.root"
    monkeypatch.setattr("hepcache.io.retry.RETRIES", 2)
    begin = time.monotonic()
    with pytest.raises(OSError, match=r"refused") as caught:
        run(url)
    took = time.monotonic() - begin
    assert url in str(caught.value)
    # Waits of 0.1 s and 0.2 s, each a quarter more at most.
    assert 0.2 < took < 5


def test_nobody_walks_the_disk_for_an_empty_name(tmp_path: Path) -> None:
    (tmp_path / "files.json").write_text('{"d": [""]}')
    forms: list[Any] = ["", " ", [""], {"d": [""]}, {"d": ""}, {"d": {"files": {"": "Events"}}},
                        tmp_path / "files.json"]  # fmt: skip
    for form in forms:
        begin = time.monotonic()
        with pytest.raises(BadFilesetError, match="no name of a file: it is empty"):
            load_fileset(form)
        assert time.monotonic() - begin < 1
