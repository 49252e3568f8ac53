"""Who gives no client gets the current one, or is told that there is none."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import pytest
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.compat.conftest import JET_EVENTS, write_jets

import hepcache
from hepcache import compat
from hepcache.errors import ClusterError

OPTIONS: dict[str, Any] = {"schema": BaseSchema, "chunksize": 20}
RUNNERS: dict[str, Callable[[], Any]] = {
    "Runner": lambda: hepcache.Runner(**OPTIONS),
    "Runner and Executor": lambda: hepcache.Runner(hepcache.Executor(), **OPTIONS),
    "coffea's executor": lambda: hepcache.Runner(coffea.DaskExecutor(), **OPTIONS),
    "compat": lambda: compat.Runner(compat.DaskExecutor(), **OPTIONS),
    "coffea's Runner and ours": lambda: coffea.Runner(
        hepcache.Executor(), pre_executor=coffea.IterativeExecutor(), **OPTIONS
    ),
    "coffea's Runner and compat": lambda: coffea.Runner(compat.DaskExecutor(), **OPTIONS),
}


def places(events: Any) -> dict[str, Any]:
    return {"events": len(events), "workers": {distributed.get_worker().address}}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    return {"jets": [str(write_jets(tmp_path / "jets.root"))]}


@pytest.mark.parametrize("name", RUNNERS)
def test_the_current_client_is_used(
    name: str, files: dict[str, list[str]], hepcache_client: distributed.Client
) -> None:
    run = RUNNERS[name]()  # made before there is a client
    with hepcache_client.as_current():
        output = run(files, places, treename="Events")
    assert output["events"] == JET_EVENTS
    assert output["workers"] <= set(hepcache_client.nthreads())
    assert run.executor.client is None


@pytest.mark.parametrize(
    "name", [name for name in RUNNERS if not name.startswith("coffea's Runner")]
)
def test_without_any_client_the_error_says_what_to_do(
    name: str, files: dict[str, list[str]]
) -> None:
    run = RUNNERS[name]()
    with pytest.raises(ClusterError, match=r"LocalCluster\(\)\.client\(\)"):
        run(files, places, treename="Events")
    # Chunks are cut here.
    assert len(list(run.preprocess(files, treename="Events"))) == JET_EVENTS // 20


def test_an_executor_keeps_the_client_that_it_was_given(
    hepcache_client: distributed.Client, plain_client: distributed.Client
) -> None:
    executor = hepcache.Executor(client=hepcache_client)
    with plain_client.as_current():
        assert executor.client is executor.copy().client is hepcache_client
        assert hepcache.Executor().client is plain_client
        assert pickle.loads(pickle.dumps(executor)).client is plain_client
    assert hepcache.Executor().client is None
    assert "client=None" in repr(copy.copy(hepcache.Executor()))
