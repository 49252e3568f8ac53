from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
import uproot
from tests.formats.conftest import write_mixed_tree

from hepcache.cli import main
from hepcache.clusters import LocalCluster


class Hepcache:
    """The command in this process: exit code, output and messages of one call."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *arguments: str | Path) -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.argv", ["hepcache", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def hepcache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hepcache]:
    monkeypatch.setenv("COLUMNS", "200")
    # What a command forks its workers from lives as long as its process, in the environment of
    # the first command: here many tests share one. test_terminal.py runs it as a process.
    monkeypatch.setattr("hepcache.cli.run.preload_workers", lambda: None)
    monkeypatch.setattr("hepcache.cli.options.METHOD", {})
    with dask.config.set({"hepcache.catalogue": str(tmp_path / "c.sqlite")}):
        yield Hepcache(capsys, monkeypatch)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of four files of a small tree."""
    directory = tmp_path_factory.mktemp("data")
    for number in range(4):
        write_mixed_tree(directory / f"{number}.root", uproot.ZSTD(1))
    return directory


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """Return the cluster of the test's module, its caches empty."""
    shared_cluster.clear_caches()
    return shared_cluster
