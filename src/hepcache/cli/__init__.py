"""The command ``hepcache``: one file per command."""


def main() -> None:
    """Run the command line; see :func:`hepcache.cli.app.main`."""
    # Worker processes import the script that calls this, and need nothing of the command.
    from hepcache.cli.app import main as run

    run()


__all__ = ["main"]
