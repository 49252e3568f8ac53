"""Fixtures for every room."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import dask.config
import distributed  # noqa: F401 - what it sets for its workers
import hypothesis
import pytest
from tests.distribution import Scheduling, order
from xdist.remote import Producer

# These machines are shared and slow at times; a slow example is no failure. The same commit
# gets the same examples; --hypothesis-profile=search looks for others.
hypothesis.settings.register_profile("hepcache", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile("hepcache")

# Tests of real processes against real clocks. On a machine that stands still for seconds one of
# thousands fails now and then: it is tried again, twice at most, and pytest's summary names it.
# Rooms that compute or store anything have no second try.
_CLOCKED = {
    "benchmarks",
    "cli",
    "clusters",
    "compat",
    "dashboard",
    "live",
    "process",
    "scheduling",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of several processes; all have the same order
        order(items)
    tests = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(tests) and item.path.relative_to(tests).parts[0] in _CLOCKED:
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # they are in order
    return Scheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep catalogue and cache of the tests away from the user's own."""
    home = tmp_path_factory.mktemp("hepcache")
    chosen = {
        "hepcache.catalogue": str(home / "catalogue.sqlite"),
        "hepcache.cache.directory": str(home / "columns"),
    }
    with dask.config.set(chosen):
        yield


# What a worker imports of others; hepcache itself is imported by every worker anew.
_IMPORTED = ["distributed.nanny", "coffea.nanoevents", "coffea.processor", "hist", "numba"]


@pytest.fixture(autouse=True, scope="session")
def _forked_workers() -> Iterator[None]:
    """Fork the workers of clusters from one process that has imported the packages.

    They have the environment that is here now: a test whose workers need another one sets
    ``spawn``. What users start, commands and scripts, is tested as it is.
    """
    forkserver.set_forkserver_preload(_IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dask.config.get("distributed.nanny.pre-spawn-environ").items():
            patch.setenv(name, str(value))
        forkserver.ensure_running()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture
def own_cache(tmp_path: Path) -> Iterator[None]:
    """Give this process an empty cache and catalogue, and let it forget all others."""
    from hepcache.formats.registry import forget_sources
    from hepcache.process.worker_state import forget

    chosen = {
        "hepcache.cache.directory": str(tmp_path / "columns"),
        "hepcache.catalogue": str(tmp_path / "catalogue.sqlite"),
    }
    forget()
    forget_sources()
    with dask.config.set(chosen):
        yield
        forget()
        forget_sources()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C do what Python does.

    dask_jobqueue, which another test imports, exits; what a shell puts in the background ignores
    it.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Directory of small real files that stands beside the checkout, if it does."""
    path = Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the shared test data is not beside this checkout ({path})")
    return path


@pytest.fixture(scope="session")
def daos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    """Return the stand-in for libdaos, which ``daos://`` leads to."""
    from tests.objectstore.standin import standin

    with standin(tmp_path_factory.mktemp("daos")) as library:
        yield library
