"""``hepcache demo``: the main job on a sample made here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the report.")] = Path("hepcache-demo"),
    cycles: Annotated[int, typer.Option(help="Cycles, the first with cold caches.")] = 4,
    origin_bandwidth: Annotated[
        str, typer.Option(help="Emulated link to the files, shared by all hosts.")
    ] = "4MB/s",
) -> None:
    """Make a NanoAOD sample, analyse it in cycles on two simulated hosts, write the report.

    The files lie behind an emulated slow link, as on a busy file server. The
    first cycle reads them through it; later cycles read local caches.
    """
    from hepcache.bench.cycles import CyclesPlan
    from hepcache.cli.bench import show_cycles, write_report

    plan = CyclesPlan(cycles=cycles, events=20_000, origin_bandwidth=origin_bandwidth)
    report = show_cycles(plan, title="hepcache demo", quiet=False)
    write_report(report, out)
    typer.echo(
        "Next: hepcache sample nanoaod data --events 100000 --files 4, "
        "then hepcache run examples/hh_bbll.py:Processor data --hosts 2 --cycles 3"
    )
