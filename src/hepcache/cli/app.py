"""The command's frame: its sub-commands, and how an error becomes one line."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated

import typer

from hepcache import __version__
from hepcache.cli.bench import bench
from hepcache.cli.cache import cache
from hepcache.cli.catalogue import catalogue
from hepcache.cli.cluster import cluster
from hepcache.cli.config import config, init
from hepcache.cli.demo import demo
from hepcache.cli.doctor import doctor
from hepcache.cli.eventstore import store
from hepcache.cli.hdf5 import hdf5
from hepcache.cli.objects import objects
from hepcache.cli.report import explain, report
from hepcache.cli.run import run
from hepcache.cli.sample import recompress, sample
from hepcache.cli.top import top
from hepcache.errors import ChunkError, ConfigurationError, HepcacheError

FAILED, BAD_USE, INTERRUPTED = 1, 2, 128 + 2

app = typer.Typer(
    name="hepcache",
    help="Analyse NanoAOD in cycles on a cluster that remembers which host holds which columns.",
    epilog="Start with 'hepcache demo'. Every command has --help; errors show a traceback with "
    "'hepcache --debug COMMAND ...'.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(demo)
app.command()(init)
app.add_typer(config, name="config")
app.command()(run)
app.command()(top)
app.add_typer(sample, name="sample")
app.command()(recompress)
app.add_typer(cache, name="cache")
app.add_typer(hdf5, name="hdf5")
app.add_typer(store, name="store")
app.add_typer(objects, name="objects")
app.add_typer(cluster, name="cluster")
app.command()(doctor)
app.add_typer(bench, name="bench")
app.add_typer(report, name="report")
app.command()(explain)
app.add_typer(catalogue, name="catalogue")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hepcache {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error, not just its line.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - the callback does the work
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    context.obj = {"debug": debug}


_EXTRAS = {
    "aiohttp": "remote",
    "bokeh": "dashboard",
    "correctionlib": "examples",
    "cryptography": "htcondor",
    "dask_jobqueue": "htcondor",
    "deflate": "hdf5",
    "fsspec_xrootd": "remote",
    "h5py": "hdf5",
    "hdf5plugin": "hdf5",
    "htcondor2": "htcondor",
    "isal": "hdf5",
    "law": "workflow",
    "luigi": "workflow",
    "obstore": "objects",
    "s3fs": "remote",
    "xgboost": "examples",
    "XRootD": "remote",
    "zlib_ng": "hdf5",
}
"""Which of hepcache's extras brings a package, by the name that is imported."""

_FIXES = {
    errno.ENOSPC: "free space there, or name another directory",
    errno.EDQUOT: "your quota there is used up; free some, or name another directory",
    errno.EACCES: "you may not do that there; ask its owner, or name another place",
    errno.EROFS: "nothing can be written there; name another directory",
}


def _fix(error: Exception) -> str:
    """Return what to do about an error of the system; hepcache's own say it themselves."""
    if isinstance(error, ImportError) and "pip install" not in str(error):
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        return f"; pip install 'hepcache[{extra}]' brings it" if extra else ""
    if isinstance(error, HepcacheError) or not isinstance(error, OSError):
        return ""
    fix = _FIXES.get(error.errno or 0)
    return f"; {fix}" if fix else ""


def _text(error: Exception) -> str:
    """Return an error's words; those of a chunk begin with the line of the user's code."""
    if not isinstance(error, ChunkError):
        return str(error)
    problem = error.problem.replace(f"{Path.cwd()}/", "")
    return (
        f"{problem}\n  dataset {error.dataset!r}, file {error.path}, tree {error.tree}, "
        f"entries {error.start:,} to {error.stop:,}"
    )


def main() -> None:
    """Run the command line.

    The exit code is 0 (done), 1 (it failed, or what was checked is not in order),
    2 (bad arguments or settings), 3 (done, but for what was bad and skipped) or
    130 (interrupted).
    """
    debug = "--debug" in sys.argv
    try:
        app(prog_name="hepcache")
    except KeyboardInterrupt:
        typer.echo("hepcache: interrupted", err=True)
        raise SystemExit(INTERRUPTED) from None
    except (HepcacheError, OSError, ValueError, ImportError) as error:
        if debug:
            raise
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        typer.echo(f"hepcache: {_text(error)}{_fix(error)}{notes}", err=True)
        raise SystemExit(BAD_USE if isinstance(error, ConfigurationError) else FAILED) from None
