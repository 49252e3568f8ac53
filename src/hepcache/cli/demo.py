"""``hepcache demo``: the main job, from nothing, on a sample made here."""

from __future__ import annotations

import json as jsonlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.options import Json, count_of
from hepcache.cli.output import prepared_directory, written
from hepcache.display import waiting


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the report.")] = Path("hepcache-demo"),
    cycles: Annotated[
        int, typer.Option(min=1, help="Passes over the sample, the first one cold.")
    ] = 5,
    events: Annotated[
        int, typer.Option(parser=count_of, metavar="NUMBER", help="Events of the sample.")
    ] = 24_000,
    origin_bandwidth: Annotated[
        str, typer.Option(help="Emulated link to the files, shared by all hosts.")
    ] = "4MB/s",
    json: Json = False,
) -> None:
    """Make a NanoAOD sample, read it in cycles on two simulated hosts, write the report.

    The files lie behind an emulated slow link, as on a busy file server. The
    first cycle reads them through it; later cycles read the hosts' caches.
    """
    from rich.console import Console

    with waiting("Loading coffea and Dask"):
        from hepcache.bench.cycles import LiveCycles, run_cycles
        from hepcache.bench.frame import stdout_for_result
        from hepcache.bench.plan import QUICK
        from hepcache.cli.bench import write_report

    prepared_directory(out)
    plan = replace(
        QUICK,
        cycles=cycles,
        sample=replace(QUICK.sample, events=events),
        origin_bandwidth=origin_bandwidth,
    )
    with stdout_for_result(), LiveCycles() as live:
        report = run_cycles(plan, title="hepcache demo", note=live.note, on_cycle=live.cycle)
    written(lambda directory: write_report(report, directory, quiet=json), out)
    if json:
        typer.echo(jsonlib.dumps(report.to_dict()))
        return
    console = Console()
    console.print(report)
    # make leaves hepcache in an environment that nobody has activated.
    me = "hepcache" if shutil.which("hepcache") else Path(sys.executable).with_name("hepcache")
    console.print(
        f"\nOpen {out / 'report.html'} in a browser. Then try a real analysis on a sample of your "
        f"own:\n  {me} sample nanoaod data --events 20000\n"
        f"  {me} run examples/hh_bbll.py:Processor data --hosts 2 --cycles 3 --out out/hh",
        soft_wrap=True,
        markup=False,
        highlight=False,
    )
