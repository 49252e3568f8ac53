"""``hepcache cluster``: an HTCondor pool before one works in it."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer

from hepcache.cli.written import Json

__all__ = ["cluster"]

cluster = typer.Typer(
    help="Look at an HTCondor pool: its machines, and what a worker's job would be.",
    no_args_is_help=True,
)


@cluster.command()
def pool(
    json: Json = False,
) -> None:
    """Show the pool's machines: slots, those that are free, hepcache's workers, caches."""
    from rich.console import Console

    from hepcache.clusters.htcondor.pool import query_pool

    found = query_pool()
    if json:
        typer.echo(jsonlib.dumps(found.to_dict()))
    else:
        Console().print(found)


@cluster.command()
def script(
    cores: Annotated[int | None, typer.Option(min=1, help="Threads of a worker.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a worker, such as 3GB.")] = None,
    json: Json = False,
) -> None:
    """Print what HTCondorCluster would submit for a worker, as it is configured here."""
    from hepcache.clusters.htcondor import HTCondorCluster

    with HTCondorCluster(cores=cores, memory=memory) as made:
        script = made.job_script()
    typer.echo(jsonlib.dumps({"script": script}) if json else script)
