"""Many new files: the cluster's workers open them, and a deadly one is named."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from coffea.nanoevents import BaseSchema
from distributed import Client, WorkerPlugin
from tests.rootfiles import WriteTree

from hepcache.catalogue import catalogue as catalogue_module
from hepcache.catalogue.catalogue import Catalogue, Target, open_all, open_in_processes
from hepcache.clusters import LocalCluster
from hepcache.errors import BadFileError, ClusterError
from hepcache.fileset import FileSpec
from hepcache.process import Executor, Runner
from hepcache.process.open_files import open_on_workers

FILES = 20
DEADLY = "deadly.root"


class DieOnDeadlyFiles(WorkerPlugin):
    """Let a worker die of a file of a certain name, as of a fault in a library."""

    def setup(self, worker: Any) -> None:
        """Put the fault where files are opened."""
        examine = catalogue_module.examine

        def deadly(path: str, *arguments: Any) -> Any:
            if path.endswith(DEADLY):
                os.kill(os.getpid(), signal.SIGKILL)
            return examine(path, *arguments)

        catalogue_module.examine = deadly


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    options = {"distributed.scheduler.allowed-failures": 1}
    with (
        dask.config.set(options),
        LocalCluster(hosts=2, cache_directory=tmp_path_factory.mktemp("caches")) as cluster,
        # Not the one that Dask finds where none is named.
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def paths(write_tree: WriteTree) -> list[str]:
    return [str(write_tree(f"{number:02d}.root", seed=number)) for number in range(FILES)]


def targets(paths: list[str]) -> list[Target]:
    return [Target(path, "Events") for path in paths]


def not_here(*_: Any) -> Any:
    raise AssertionError("the client opened a file itself")


def test_a_runner_lets_workers_open_new_files(
    client: Client, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client opens none of many files; of the result nothing is missing."""
    monkeypatch.setattr(catalogue_module, "examine", not_here)
    runner = Runner(Executor(client=client, status=False), schema=BaseSchema)
    out = runner({"d": {"files": dict.fromkeys(paths, "Events")}}, len_of)
    assert out == {"events": 35 * FILES}


def len_of(events: Any) -> dict[str, int]:
    """Count events."""
    return {"events": len(events)}


def test_workers_find_what_the_client_would(client: Client, paths: list[str]) -> None:
    Path(paths[3]).write_bytes(b"no ROOT file")
    Path(paths[7]).unlink()
    wanted = targets(paths)
    found = dict(open_on_workers(wanted, {}, client=client))
    for target, here in open_all(wanted, {}):
        if isinstance(here, BadFileError):
            assert str(found[target]) == str(here)
            assert type(found[target]) is type(here)
        else:
            assert found[target] == here


def test_a_few_files_are_opened_by_the_client(
    client: Client, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    monkeypatch.setattr(catalogue_module, "examine", lambda path, *_: opened.append(path))
    list(open_on_workers(targets(paths[:16]), {}, client=client))
    assert sorted(opened) == paths[:16]


def test_processes_find_what_threads_do(paths: list[str]) -> None:
    wanted = targets(paths * 4)  # as many as are worth processes
    found = list(open_in_processes(wanted, {}, jobs=2))
    assert [target for target, _ in found] == wanted
    assert dict(found) == dict(open_all(targets(paths), {}))


@pytest.mark.slow
def test_a_file_that_kills_workers_is_a_bad_file(
    client: Client, paths: list[str], write_tree: WriteTree, tmp_path: Path
) -> None:
    """Those beside it in its batch are opened, and the catalogue keeps them."""
    client.register_plugin(DieOnDeadlyFiles(), name="deadly")
    deadly = str(write_tree(DEADLY))
    specs = [FileSpec("d", path, "Events") for path in (*paths, deadly)]
    with Catalogue(tmp_path / "catalogue.sqlite") as catalogue:
        found, bad = catalogue.survey(
            specs,
            open_files=lambda wanted, options: open_on_workers(wanted, options, client=client),
            progress=False,
        )
        assert [spec.path for spec, _ in found] == paths
        ((spec, error),) = bad
        assert spec.path == deadly
        assert "each worker that opened it died" in str(error)
        assert len(list(catalogue.known())) == FILES
    client.unregister_worker_plugin("deadly")


@pytest.mark.slow
def test_a_scheduler_that_goes_is_one_clear_error(paths: list[str]) -> None:
    """It goes while a worker holds a file up; of the others the catalogue keeps what it has."""
    with LocalCluster(hosts=1) as cluster, Client(cluster, set_as_default=False) as client:
        client.register_plugin(WaitForever(), name="waiting")
        opened = open_on_workers(targets(paths), {}, client=client)
        threading.Timer(2.0, cluster.close).start()
        with pytest.raises(ClusterError, match="run again"):
            list(opened)


class WaitForever(WorkerPlugin):
    """Let the workers wait in files."""

    def setup(self, worker: Any) -> None:
        """Put the fault where files are opened."""
        catalogue_module.examine = lambda *_: time.sleep(60)
