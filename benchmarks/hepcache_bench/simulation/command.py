"""The published cluster and larger ones, simulated; and what placement alone comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from hepcache.bench.frame import progress
from hepcache.bench.result import BenchResult

__all__ = ["bench"]

_CYCLES = 10
_LIMIT_S = 20.0  # for a million chunks on a thousand hosts


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,
    workers: Annotated[
        int | None,
        typer.Option(min=64, help="Slots of the large cluster: 10000, with --quick 1000."),
    ] = None,
    chunks: Annotated[
        int | None, typer.Option(min=1000, help="Chunks for it: 1000000, with --quick 20000.")
    ] = None,
) -> BenchResult:
    """Simulate ten cycles of the published cluster, then two of a large one.

    The simulator drives the placement's own code: without affinity, by the published rule
    with stock stealing, and as hepcache does. The published system became 6.3 times
    faster after one cycle and 14.9 times after ten. Then a million chunks are
    placed on a thousand hosts. --out DIR also receives the figure as simulation.svg.
    """
    # Imported here: they take seconds, and the command's --help must not.
    from hepcache_bench.simulation.cluster import large, published
    from hepcache_bench.simulation.cycles import MODES, simulate

    rows: list[dict[str, Any]] = []
    progress.print("Compiling the simulator")
    list(simulate(*large(64, 100), MODES["ours"], cycles=1))
    results = {}
    for key, mode in MODES.items():
        progress.print(f"Published cluster, {mode.name}: {_CYCLES} cycles")
        begin = perf_counter()
        results[key] = list(simulate(*published(), mode, cycles=_CYCLES))
        rows += _rows(mode.name, "published", results[key], perf_counter() - begin)
    workers, chunks = (
        workers or (1000 if quick else 10_000),
        chunks or (20_000 if quick else 10**6),
    )
    progress.print(f"{workers} workers, {chunks} chunks, hepcache: 2 cycles")
    begin = perf_counter()
    found = list(simulate(*large(workers, chunks), MODES["ours"], cycles=2))
    rows += _rows(MODES["ours"].name, f"{workers} workers", found, perf_counter() - begin)
    ratios = {
        "published_speedup_cycle2": _speed_up(results["published"], 2),
        "published_speedup_cycle10": _speed_up(results["published"], 10),
        "ours_speedup_cycle2": _speed_up(results["ours"], 2),
        "ours_speedup_cycle10": _speed_up(results["ours"], 10),
        **_placement(rows),
    }
    if out is not None:
        _draw(out, results)
    return BenchResult("simulation", rows, ratios)


def _placement(rows: list[dict[str, Any]]) -> dict[str, float]:
    from hepcache_bench.simulation.balance import measure_balance, measure_movement, measure_scale

    progress.print("Placing 1000000 chunks on 1000 hosts")
    scale = measure_scale(1_000_000, 1000)
    rows.append({"case": "placement alone", **asdict(scale)})
    progress.print("Balance, and movement when a host is added")
    balance = measure_balance(221, 20_000)
    rows.append({"case": "placement alone", **asdict(balance)})
    # Cold, few jobs per host move beyond their share because a bound in whole jobs is coarse.
    sizes = ((7, 20_000), (50, 20_000), (221, 20_000), (50, 100_000), (221, 600_000))
    moved = [measure_movement(*size) for size in sizes]
    rows += [{"case": "one host more or less", **asdict(one)} for one in moved]
    return {
        "max_over_fair_221": balance.max_over_fair,
        "nearest_share": balance.nearest_share,
        "moved_over_unavoidable": max(max(one.joined, one.left) for one in moved),
        "moved_cold_over_unavoidable": max(
            one.cold for one in moved if one.jobs > 1000 * one.hosts
        ),
        "place_million_s_over_limit": scale.place_s / _LIMIT_S,
    }


def _rows(mode: str, cluster: str, found: Sequence[Any], simulated_s: float) -> list[Any]:
    return [
        {
            "case": mode,
            "cluster": cluster,
            "cycle": number,
            "wall_s": one.wall_s,
            "speed_up": found[0].wall_s / one.wall_s,
            "hit_ratio": one.hit_ratio,
            "origin_bytes": one.origin_bytes,
            "stolen": one.stolen,
            "first_host_done_s": min(one.finished_s.values()),
            "simulation_s": simulated_s / len(found),
        }
        for number, one in enumerate(found, start=1)
    ]


def _speed_up(found: Sequence[Any], cycle: int) -> float:
    return float(found[0].wall_s / found[cycle - 1].wall_s)


def _draw(out: Path, results: dict[str, Any]) -> None:
    from hepcache.io.atomic import write_atomically
    from hepcache.report.render.figures import rendered
    from hepcache_bench.simulation.figure import simulation_figure

    write_atomically(out / "simulation.svg", rendered(simulation_figure(results), "svg"))
