"""One script, run under plain coffea and under hepcache, on every executor, cold and hot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import dask.config
import distributed
import loky
import numpy as np
import pytest
import uproot
from coffea import processor as coffea
from coffea.processor import Err, Ok
from coffea.util import _exception_chain as chain

import hepcache
from hepcache import compat

EXECUTORS = ("iterative", "futures", "cluster")

JET_EVENTS = 60

Script = Callable[[ModuleType, Any], Any]
"""A user's script: takes the processor module and an executor, returns what is compared."""


@dataclass(frozen=True)
class Outcome:
    """What a script came to: its value, or the exception that ended it."""

    value: Any = None
    error: BaseException | None = None


def outcome(script: Script, processor: ModuleType, executor: Any) -> Outcome:
    """Run a script under one of the two."""
    try:
        return Outcome(value=script(processor, executor))
    except Exception as error:
        return Outcome(error=error)


def equal(ours: Any, theirs: Any) -> bool:
    """Tell whether two outputs are the same, arrays and histograms exactly."""
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, Ok):
        return equal(ours.value, theirs.value)
    if isinstance(theirs, Err):
        # Where coffea keeps nothing of what was done, hepcache does.
        kept = theirs.value is None or equal(ours.value, theirs.value)
        return alike(ours.exception, theirs.exception) and kept
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(equal(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    if isinstance(theirs, ak.Array | np.ndarray):
        return bool(ak.array_equal(ours, theirs, dtype_exact=True, equal_nan=True))
    return bool(ours == theirs)


def ordered(output: Any) -> Any:
    """Return an output by names; in which order a cluster adds results up is nobody's promise."""
    if not isinstance(output, dict):
        return output
    return {name: ordered(output[name]) for name in sorted(output)}


def write_jets(path: Path) -> Path:
    """Write jets that refer to muons; such columns take coffea's own way into the events."""
    numbers = np.random.default_rng(5)
    jets = np.arange(JET_EVENTS) % 4

    def vectors(counts: np.ndarray) -> dict[str, ak.Array]:
        return {
            name: ak.unflatten(numbers.random(counts.sum()), counts)
            for name in ("pt", "eta", "phi", "mass", "charge")
        }

    indices = ak.unflatten(numbers.integers(-1, 3, jets.sum()), jets)
    events = {
        **{name: np.arange(JET_EVENTS) for name in ("run", "luminosityBlock", "event")},
        "Muon": ak.zip(vectors(np.full(JET_EVENTS, 3))),
        "Jet": ak.zip({**vectors(jets), "muonIdx1": indices}),
    }
    with uproot.recreate(path, compression=uproot.ZLIB(1)) as file:
        file.mktree("Events", {name: ak.type(one).content for name, one in events.items()})
        file["Events"].extend(events)
    return path


def alike(ours: BaseException | None, theirs: BaseException) -> bool:
    """Tell whether whoever handles coffea's exception, or one of its causes, handles ours."""
    found = chain(ours)
    return isinstance(ours, type(theirs)) and all(
        any(isinstance(one, type(cause)) for one in found) for cause in chain(theirs)
    )


@pytest.fixture(autouse=True)
def _own_cache(own_cache: None) -> None:
    """Begin every test with nothing in the cache of this process."""


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[loky.ProcessPoolExecutor]:
    """Two processes for coffea's FuturesExecutor, which would import all anew in every run."""
    home = tmp_path_factory.mktemp("compat-pool")
    directory = {"hepcache.cache.directory": str(home / "columns")}
    with loky.ProcessPoolExecutor(2, initializer=dask.config.set, initargs=(directory,)) as made:
        yield made


@pytest.fixture(scope="session")
def plain_client() -> Iterator[distributed.Client]:
    """Client of a cluster on which hepcache is not."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def hepcache_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    """Client of two simulated hosts."""
    home = tmp_path_factory.mktemp("compat-hosts")
    with (
        hepcache.LocalCluster(hosts=2, cache_directory=home) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Callable[..., dict[str, tuple[Outcome, ...]]]:
    """Run a script under both, and compare.

    The fixture's value takes the script and the names of executors, and raises
    AssertionError unless all outcomes are the same: equal values, or exceptions
    of which ours is an instance of coffea's type, its causes too. It returns the outcomes
    (coffea, cold, hot) by executor.
    """

    def run(script: Script, executors: tuple[str, ...] = EXECUTORS) -> dict[str, Any]:
        found = {}
        for name in executors:
            executor = executor_of(request, coffea, name)
            # coffea's bars ask for the client that is in force.
            with executor.client.as_current() if name == "cluster" else nullcontext():
                theirs = outcome(script, coffea, executor)
            cold, hot = (
                outcome(script, compat, executor_of(request, compat, name)) for _ in range(2)
            )
            for when, ours in (("cold", cold), ("hot", hot)):
                where = f"{name}, {when}"
                if theirs.error is None:
                    if ours.error is not None:
                        raise AssertionError(f"{where}: only hepcache fails") from ours.error
                    assert equal(ours.value, theirs.value), (
                        f"{where}: {ours.value!r} where coffea gives {theirs.value!r}"
                    )
                else:
                    assert alike(ours.error, theirs.error), (
                        f"{where}: {ours!r} where coffea raises {theirs.error!r}"
                    )
            found[name] = (theirs, cold, hot)
        return found

    return run


def executor_of(request: pytest.FixtureRequest, processor: ModuleType, name: str) -> Any:
    """Return an executor of a script's processor module."""
    if name == "iterative":
        return processor.IterativeExecutor(status=False)
    if name == "futures":
        return processor.FuturesExecutor(pool=request.getfixturevalue("pool"), status=False)
    client = "plain_client" if processor is coffea else "hepcache_client"
    return processor.DaskExecutor(client=request.getfixturevalue(client), status=False)
