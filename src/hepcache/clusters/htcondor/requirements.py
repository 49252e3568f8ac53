"""ClassAd expressions that say where a job may run, and where it had better; pure."""

from __future__ import annotations

import re

from hepcache.errors import ConfigurationError

__all__ = ["HOST", "RANK", "both", "on_machines"]

HOST = "$$([TARGET.HepcacheHost?:TARGET.Machine])"
"""The host of the machine that a job was matched with: HTCondor fills it in when it starts.

Without blanks, at which HTCondor would cut it in pieces."""

RANK = "TARGET.HepcacheUsedMiB ?: 0"
"""Machines whose caches hold most come first, among those that are free."""


def on_machines(pattern: str) -> str:
    """Return the requirement that pins a job to machines.

    Parameters
    ----------
    pattern
        A machine's name, with or without its domain, or a pattern as in a
        shell: ``*`` for anything, ``?`` for one character.

    Raises
    ------
    ConfigurationError
        The pattern is empty, or has characters that no name has.

    Examples
    --------
    >>> print(on_machines("big-0?"))
    regexp("^big-0.([.].*)?$", TARGET.Machine, "i")
    """
    if not re.fullmatch(r"[A-Za-z0-9.*?_-]+", pattern):
        raise ConfigurationError("hosts", "a machine's name, with * and ? as in a shell", pattern)
    # Written without backslashes, which ClassAds would want doubled.
    marks = {".": "[.]", "*": ".*", "?": "."}
    expression = "".join(marks.get(character, character) for character in pattern)
    return f'regexp("^{expression}([.].*)?$", TARGET.Machine, "i")'


def both(*requirements: str | None) -> str | None:
    """Return the requirement that all of some are met; ``None`` where there is none."""
    given = [one for one in requirements if one]
    if len(given) < 2:
        return given[0] if given else None
    return " && ".join(f"({one})" for one in given)
