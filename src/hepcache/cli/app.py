"""The command's frame: its sub-commands, and how an error becomes one line."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from hepcache import __version__
from hepcache.cli.bench import bench
from hepcache.cli.cache import cache
from hepcache.cli.catalogue import catalogue
from hepcache.cli.config import config
from hepcache.cli.demo import demo
from hepcache.cli.doctor import doctor
from hepcache.cli.explain import explain
from hepcache.cli.hdf5 import hdf5
from hepcache.cli.init import init
from hepcache.cli.objects import objects
from hepcache.cli.pool import cluster
from hepcache.cli.recompress import recompress
from hepcache.cli.report import report
from hepcache.cli.run import run
from hepcache.cli.sample import sample
from hepcache.cli.store import store
from hepcache.errors import ConfigurationError, HepcacheError

__all__ = ["app", "main"]

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
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    context.obj = {"debug": debug}


_FIXES = {
    errno.ENOSPC: "make room there, or name another directory",
    errno.EDQUOT: "your quota there is used up; make room, or name another directory",
    errno.EACCES: "you may not do that there; ask its owner, or name another place",
    errno.EROFS: "nothing can be written there; name another directory",
}


def _fix(error: Exception) -> str:
    """Return what to do about an error of the system; hepcache's own say it themselves."""
    if isinstance(error, HepcacheError) or not isinstance(error, OSError):
        return ""
    fix = _FIXES.get(error.errno or 0)
    return f"; {fix}" if fix else ""


def main() -> None:
    """Run the command line.

    The exit code is 0 (done), 1 (it failed, or what was checked is not in order),
    2 (bad arguments or settings) or 130 (interrupted).
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
        typer.echo(f"hepcache: {error}{_fix(error)}", err=True)
        raise SystemExit(BAD_USE if isinstance(error, ConfigurationError) else FAILED) from None
