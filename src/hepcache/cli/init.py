"""``hepcache init``: a commented configuration for this machine."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hepcache.cli.written import Json

if TYPE_CHECKING:
    from hepcache.doctor.places import Place

__all__ = ["init"]


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

    from hepcache.doctor.places import best, look_for_places, shared_mounts
    from hepcache.doctor.proposal import chosen_settings, proposal
    from hepcache.errors import ConfigurationError
    from hepcache.report.files import write_atomically

    home = Path(platformdirs.user_cache_dir("hepcache")) / "columns"
    target = out or Path(dask.config.PATH) / "hepcache.yaml"
    if str(target) != "-" and target.exists() and not overwrite:
        raise ConfigurationError("--out", "a new file, or --overwrite", str(target))
    places, shared = look_for_places(home), shared_mounts()
    place = _named(directory) if directory is not None else best(places)
    if place is None:
        reasons = "; ".join(f"{one.mount_point}: {one.problem}" for one in places)
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
            "volumes": [asdict(one) for one in places],
            "shared": [asdict(one) for one in shared],
        }
        typer.echo(jsonlib.dumps(found))
    elif str(target) != "-":
        typer.echo(f"Written: {target}")
        for key, (value, reason) in chosen.items():
            typer.echo(f"  {key}: {value}  ({reason})")
        typer.echo("Then: hepcache doctor")


def _named(directory: Path) -> Place:
    from hepcache.doctor.places import Place
    from hepcache.report.machine import storage

    facts = storage(Path(str(directory).split("{user}")[0]).expanduser().absolute())
    return Place(
        str(directory), facts["filesystem"], str(directory), facts["size_bytes"],
        facts["free_bytes"], facts["rotational"], own=True,
    )  # fmt: skip
