"""The cold cycle: how fast columns come from an origin, against plain coffea in the same run.

Two hosts of one worker each read the same 120 columns as in the benchmark of
cycles, with nothing cached and no file known, from a local disk, over a shaped
link from a file system, and over https and root:// through a proxy that has
the link's bandwidth and a round trip of 20 ms. coffea's own Runner does the
same with the same workers in turn. Then larger samples are read from the local
disk, beside the floor that inflating is (:mod:`hepcache_bench.first_pass`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import dask.config
from dask.utils import parse_bytes

from hepcache.bench.frame import drop_page_cache, no_file_known, progress
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.bench.result import BenchResult
from hepcache.errors import ClusterError
from hepcache.io.emulated_link import VARIABLE, environment
from hepcache_bench.first_pass import FirstPassPlan, measure_first_passes
from hepcache_bench.proxy import proxy
from hepcache_bench.webserver import webserver
from hepcache_bench.xrootd import missing_for_xrootd, xrootd_server

__all__ = ["ColdPlan", "bench"]

_ROUND_TRIP_S = 0.02


@dataclass(frozen=True, slots=True)
class ColdPlan:
    """What to run.

    Attributes
    ----------
    events, files, cluster
        The sample: events in all, files, and events of a cluster, which is a chunk.
    bandwidth
        Of the shaped file system's link.
    far_bandwidth
        Of the link with latency.
    rounds
        Interleaved runs, of which medians are taken.
    first_pass
        The larger samples that are read from the local disk beside the floor.
    """

    events: int = 48_000
    files: int = 2
    cluster: int = 2_000
    bandwidth: str = "4 MB/s"
    far_bandwidth: str = "12 MB/s"
    rounds: int = 3
    first_pass: FirstPassPlan = field(default_factory=FirstPassPlan)


_QUICK = ColdPlan(
    events=12_000,
    cluster=1_000,
    rounds=1,
    bandwidth="2 MB/s",
    first_pass=FirstPassPlan(
        events=20_000,
        files=2,
        chunk=5_000,
        all_branches=False,
        other_events=4_000,
        rounds=1,
        catalogued=40,
        skim_columns=100,
    ),
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One origin: the files, options for uproot, and whether the emulated link is between."""

    name: str
    files: Sequence[str]
    options: dict[str, Any] = field(default_factory=dict)
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run took, and what it read."""

    wall_s: float
    output: Any
    record: Any = None


def bench(*, quick: bool = False, out: Path | None = None) -> BenchResult:  # noqa: ARG001
    """Read 120 columns from cold origins, against coffea without hepcache.

    The origins are a local disk, a file system behind a shaped link, and
    https and root:// with 20 ms of latency. root:// needs Debian's
    xrootd-server and the extra 'remote'; without them it is left out, and
    said so. Then the first pass over larger local samples, of 400,000 events
    with all branches for zstd, beside uproot alone and the floor that
    inflating is: cold_over_floor of at most 2.5, coffea_cold of at least 5 and
    uproot_cold of at least 2 are wanted, opening_new_s of at most 0.5 and
    opening_known_s of at most 0.15.
    """
    plan = _QUICK if quick else ColdPlan()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hepcache-cold-")))
        progress.print(f"Making a sample of {plan.events:,} events")
        cases = _cases(plan, scratch, stack)
        measured = _measure(plan, cases, scratch)
        rows, ratios = measure_first_passes(plan.first_pass, scratch)
    result = _result(plan, cases, measured)
    return BenchResult("cold", [*result.rows, *rows], {**result.ratios, **ratios})


def _cases(plan: ColdPlan, scratch: Path, stack: ExitStack) -> list[_Case]:
    from hepcache.samples.nanoaod import write_nanoaod

    directory = scratch / "sample"
    paths = write_nanoaod(
        directory, events=plan.events, files=plan.files, compression="zstd:1",
        cluster=plan.cluster, branches=BENCHMARK_COLUMNS,
    )  # fmt: skip
    local = [os.fspath(path) for path in paths]
    bandwidth, far = (float(parse_bytes(one.removesuffix("/s")))
                      for one in (plan.bandwidth, plan.far_bandwidth))  # fmt: skip
    link = {"bandwidth": far, "round_trip_s": _ROUND_TRIP_S}
    scheme, port = stack.enter_context(webserver(directory, scratch))
    port = stack.enter_context(proxy(port, **link))
    web = [f"{scheme}://127.0.0.1:{port}/{path.name}" for path in paths]
    cases = [
        _Case("local", local),
        _Case("posix", local, bandwidth=bandwidth),
        # The certificate is made for the run, so nobody can vouch for it.
        _Case("https", web, {"ssl": False} if scheme == "https" else {}),
    ]
    missing = missing_for_xrootd()
    if missing is not None:
        progress.print(f"[yellow]root:// is left out: {missing}[/yellow]")
        return cases
    port = stack.enter_context(
        proxy(stack.enter_context(xrootd_server(directory, scratch)), **link)
    )
    return [*cases, _Case("xrootd", [f"root://127.0.0.1:{port}/{path}" for path in local])]


def _measure(
    plan: ColdPlan, cases: Sequence[_Case], scratch: Path
) -> dict[tuple[str, str], list[_Run]]:
    from hepcache.clusters import LocalCluster

    found: dict[tuple[str, str], list[_Run]] = {}
    segments = {"hepcache.segment.entries": plan.cluster}
    with (
        dask.config.set(segments),
        LocalCluster(hosts=2, cache_directory=scratch / "caches") as cluster,
        cluster.client() as client,
    ):
        client.run(_warm_imports)
        for number in range(plan.rounds):
            for case in cases:
                for who, run in (("coffea", _run_coffea), ("hepcache", _run_ours)):
                    progress.print(f"Round {number + 1}: {case.name}, {who}")
                    cluster.clear_caches()
                    drop_page_cache(case.files)
                    where = scratch / f"{number}-{case.name}-{who}"
                    where.mkdir()
                    with no_file_known(where), _linked(client, case, where / "link"):
                        one = run(client, case, plan)
                    found.setdefault((case.name, who), []).append(one)
    outputs = {str(one.output) for runs in found.values() for one in runs}
    if len(outputs) != 1:
        raise ClusterError(f"the runs did not read the same: {', '.join(sorted(outputs))}")
    return found


@contextmanager
def _linked(client: Any, case: _Case, state: Path) -> Iterator[None]:
    """Put the emulated link between the workers and their files."""
    if case.bandwidth is not None:
        client.run(os.environ.update, environment(case.bandwidth, state))
    yield
    client.run(os.environ.pop, VARIABLE, None)


def _run_coffea(client: Any, case: _Case, plan: ColdPlan) -> _Run:
    from coffea.processor import Runner

    from hepcache_bench.contenders import StockExecutor
    from hepcache_bench.shaped import ShapedSource

    options = {**case.options}
    if case.bandwidth is not None:
        options["handler"] = ShapedSource
    executor = StockExecutor(client=client, status=False)
    return _timed(Runner, executor, case, plan, options)


def _run_ours(client: Any, case: _Case, plan: ColdPlan) -> _Run:
    from hepcache.process import Executor, Runner

    executor = Executor(client=client, status=False)
    return _timed(Runner, executor, case, plan, case.options)


def _timed(
    kind: Callable[..., Any], executor: Any, case: _Case, plan: ColdPlan, options: dict[str, Any]
) -> _Run:
    import time

    from coffea.nanoevents import BaseSchema

    from hepcache.bench.reading import ReadColumns

    runner = kind(executor=executor, schema=BaseSchema, chunksize=plan.cluster)
    files = {"sample": {"files": dict.fromkeys(case.files, "Events")}}
    began = time.perf_counter()
    output = runner(files, ReadColumns(BENCHMARK_COLUMNS), uproot_options=options)
    wall_s = time.perf_counter() - began
    return _Run(wall_s, output, getattr(runner, "run_record", None))


def _warm_imports() -> None:
    import coffea.nanoevents
    import uproot

    assert uproot
    assert coffea.nanoevents


def _result(
    plan: ColdPlan, cases: Sequence[_Case], measured: dict[tuple[str, str], list[_Run]]
) -> BenchResult:
    from hepcache.report.summary import summarise

    rows = []
    walls = {key: median(one.wall_s for one in runs) for key, runs in measured.items()}
    utilisations = []
    for (name, who), runs in measured.items():
        row: dict[str, Any] = {
            "origin": name, "reader": who, "wall_s": walls[name, who],
            "events_per_s": plan.events / walls[name, who],
        }  # fmt: skip
        if who == "hepcache":
            summaries = [summarise(one.record) for one in runs]
            row |= {
                "requested_bytes": summaries[0].requested_bytes,
                "read_bytes": summaries[0].origin_bytes,
                "used_bytes": summaries[0].used_bytes,
            }
            bandwidth = next(one.bandwidth for one in cases if one.name == name)
            if bandwidth is not None:
                utilisations = [
                    summary.origin_bytes / (bandwidth * one.wall_s)
                    for summary, one in zip(summaries, runs, strict=True)
                ]
        rows.append(row)
    ratios = {"link_utilisation": median(utilisations)}
    for name in ("posix", "https", "xrootd"):
        if (name, "coffea") in walls:
            ratios[f"coffea_{name}"] = walls[name, "coffea"] / walls[name, "hepcache"]
    ratios["fill_cost_over_ideal"] = walls["local", "hepcache"] / walls["local", "coffea"]
    return BenchResult("cold", rows, ratios)
