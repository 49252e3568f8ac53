"""``hepcache top``: what a cluster works on now, in a terminal."""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hepcache.cli.options import Json, check_cluster
from hepcache.cli.steps import Steps
from hepcache.display import bytes_text, count_text, plain_table, ratio_text, seconds_text
from hepcache.errors import ClusterError

if TYPE_CHECKING:
    from rich.table import Table


def top(
    scheduler: Annotated[str, typer.Argument(help="Address of a Dask scheduler.")],
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    json: Json = False,
) -> None:
    """Show the latest run of a cluster, and what each host does for it, until Ctrl-C.

    It shows what the page /hepcache of the dashboard shows, as text. --json looks once.
    """
    check_cluster(scheduler, None)
    steps = Steps(shown=not json)
    with steps.step(f"Connecting to {scheduler}"):
        # Imported here: Dask takes a second, and --help must not.
        from distributed import Client
        from rich.console import Console
        from rich.live import Live

        client = Client(scheduler)
    with client:
        found = _seen(client, scheduler)
        if json:
            typer.echo(jsonlib.dumps(found))
            return
        console = Console()
        if once:
            console.print(_table(found))
            return
        with Live(_table(found), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(_table(_seen(client, scheduler)), refresh=True)


def _seen(client: Any, scheduler: str) -> dict[str, Any]:
    from hepcache.dashboard.monitor import seen

    found: dict[str, Any] | None = client.run_on_scheduler(seen)
    if found is None:
        raise ClusterError(
            f"the scheduler at {scheduler} follows no runs: start it with 'dask scheduler "
            "--preload hepcache.scheduling.plugin --preload hepcache.dashboard', and install "
            "Bokeh there (pip install 'hepcache[dashboard]')"
        )
    return found


def _table(found: Mapping[str, Any]) -> Table:
    """Return the hosts, under a line about the run."""
    hits = found["hit_ratio"]
    run = (
        f"{'done' if found['is_over'] else 'running'}: {count_text(found['chunks_done'])} of "
        f"{count_text(found['chunks'])} chunks in {seconds_text(found['elapsed_s'])}, "
        f"{count_text(found['events_per_s'])} events/s, "
        f"{'no columns yet' if hits is None else ratio_text(hits) + ' hits'}, "
        f"{bytes_text(found['cache_bytes'])} from caches (decoded), "
        f"{bytes_text(found['origin_bytes'])} from the origin (compressed)"
    )
    title = run if found["run"] else "no run yet"
    headings = ("threads", "chunks", "done", "to do", "taken", "given", "failed", "skipped")
    table = plain_table("host", *headings, title=title)
    for host in found["hosts"]:
        table.add_row(
            host["host"],
            str(host["threads"]),
            count_text(host["chunks"]),
            ratio_text(host["done"]),
            ratio_text(host["todo"]),
            *(count_text(host[name]) for name in ("taken", "given", "failed", "skipped")),
        )
    return table
