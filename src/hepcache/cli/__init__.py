"""The command ``hepcache``: one file per command."""

from hepcache.cli.app import main

__all__ = ["main"]
