"""``hepcache config``: every setting, and where its value comes from."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.options import Json

if TYPE_CHECKING:
    from hepcache.doctor.proposal import Place

config = typer.Typer(
    help="Show the settings in force, and where each comes from.", no_args_is_help=True
)


@config.callback()
def _config() -> None:
    """Keep ``show`` a sub-command while it is the only one."""


@config.command("show")
def show(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not as by default.")
    ] = False,
    json: Json = False,
) -> None:
    """Show every setting with its value and its source.

    Files count in the order of Dask's paths, the environment more than any file.
    The exit code is 2 when a value is refused or a key means nothing.
    """
    from hepcache.settings import as_yaml, configured

    found = configured()
    rows = [setting for setting in found.settings if not changed or setting.source != "default"]
    if json:
        values = {**asdict(found), "settings": [asdict(setting) for setting in rows]}
        typer.echo(jsonlib.dumps(values, default=str))
    else:
        from rich.console import Console
        from rich.text import Text

        from hepcache.display import plain_table

        table = plain_table("setting", "value", "from", left=3)
        table.columns[0].no_wrap = True
        for setting in rows:
            here = f" ({setting.resolved})" if setting.resolved else ""
            style = "" if setting.source == "default" else "bold"
            value = Text(as_yaml(setting.value) + here, style=style)
            table.add_row(Text(setting.key, style=style), value, Text(setting.source))
        console = Console()
        console.print(table if rows else "All settings are as by default.")
        console.print(f"Files: {', '.join(found.paths)}", soft_wrap=True, highlight=False)
    for key in found.unknown:
        typer.echo(f"hepcache: {key.error()}", err=True)
    if found.problem:
        typer.echo(f"hepcache: {found.problem}", err=True)
    raise typer.Exit(2 if found.unknown or found.problem else 0)


def init(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file, or - for standard output (default: hepcache.yaml in "
            "Dask's directory for your configuration; for all users /etc/dask/hepcache.yaml).",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory", help="Where the cache is to be; chosen among the volumes by default."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Look at this machine's disks and mounts, and write a configuration that suits them.

    The cache goes to an SSD of its own where there is one, else to the volume of
    your home if that is a local one. All other settings are there as comments.
    """
    import platform
    from dataclasses import replace
    from importlib.resources import files

    import dask.config
    import platformdirs

    from hepcache.doctor.proposal import (
        best,
        chosen_settings,
        look_for_places,
        proposal,
        shared_mounts,
    )
    from hepcache.errors import ConfigurationError
    from hepcache.fscache import snapshot
    from hepcache.io.atomic import write_atomically

    home = Path(platformdirs.user_cache_dir("hepcache")) / "columns"
    target = out or Path(dask.config.PATH) / "hepcache.yaml"
    if str(target) != "-" and target.exists() and not overwrite:
        raise ConfigurationError("--out", "a new file, or --overwrite", str(target))
    places, shared = look_for_places(home), shared_mounts(snapshot().mounts or ())
    place = _named(directory) if directory is not None else best(places)
    if place is None:
        reasons = "; ".join(f"{place.mount_point}: {place.problem}" for place in places)
        raise ConfigurationError("--directory", "a directory on a local disk", reasons)
    if place.directory == str(home) and home.is_relative_to(Path.home()):
        # A file that another user or machine can take over.
        place = replace(place, directory=f"~/{home.relative_to(Path.home())}")
    chosen = chosen_settings(place)
    defaults = files("hepcache").joinpath("hepcache.yaml").read_text()
    text = proposal(
        defaults, chosen, places, shared, where=platform.node(), paths=dask.config.paths
    )
    if str(target) != "-":
        write_atomically(target, text.encode())
    elif not json:
        typer.echo(text, nl=False)
    if json:
        found = {
            "path": str(target),
            "settings": {key: value for key, (value, _) in chosen.items()},
            "volumes": [asdict(place) for place in places],
            "shared": [
                {
                    "mount_point": mount.mount_point,
                    "source": mount.source,
                    "filesystem": mount.filesystem,
                    "fsc": mount.fsc,
                }
                for mount in shared
            ],
        }
        typer.echo(jsonlib.dumps(found))
    elif str(target) != "-":
        typer.echo(f"Written: {target}")
        for key, (value, reason) in chosen.items():
            typer.echo(f"  {key}: {value}  ({reason})")
        typer.echo("Then: hepcache doctor")


def _named(directory: Path) -> Place:
    from hepcache.doctor.proposal import Place
    from hepcache.report.machine import storage

    facts = storage(Path(str(directory).split("{user}")[0]).expanduser().absolute())
    return Place(
        str(directory),
        facts["filesystem"],
        str(directory),
        facts["size_bytes"],
        facts["free_bytes"],
        facts["rotational"],
        own=True,
    )
