"""``hepcache cluster``: an HTCondor pool before one works in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hepcache.cli.options import Json, told

cluster = typer.Typer(
    help="Look at an HTCondor pool: its machines, and what a worker's job would be.",
    no_args_is_help=True,
)


@cluster.command()
def pool(json: Json = False) -> None:
    """Show the pool's machines: slots, those that are free, hepcache's workers, caches."""
    from hepcache.clusters.htcondor.pool import query_pool

    found = query_pool()
    told(found.to_dict(), found, json=json)


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
    told({"script": script}, script, json=json)


@cluster.command()
def certificates(
    directory: Annotated[Path, typer.Argument(help="Where to: yours alone, made if missing.")],
    name: Annotated[str, typer.Option(help="Of the cluster, for people who look at them.")] = "",
    json: Json = False,
) -> None:
    """Write new certificates for a cluster that is submitted with condor/submit/*.sub."""
    from hepcache.clusters.tls import make_certificates, write_role_files

    security = make_certificates(name or directory.name)
    roles = ("scheduler", "worker", "client")
    files = {
        role: [str(path) for path in write_role_files(security, directory / role, role)]
        for role in roles
    }
    told(files, (path for paths in files.values() for path in paths), json=json)
