"""Private names of other packages: looked up once, and what is lost where one is gone.

A name that an upgrade has moved ends nothing: the module that asks for it does without, in the
public way. What is missing is said once, and ``hepcache doctor`` lists it.
"""

from __future__ import annotations

import os
import re
import warnings
from importlib import import_module
from operator import attrgetter
from typing import Any

__all__ = ["WITHOUT", "all_names", "is_there", "look_up", "missing_names", "warn_of_missing"]

WITHOUT = "HEPCACHE_WITHOUT"
"""Environment variable: names, separated by commas, that are taken for missing."""

_looked_up: dict[str, str] = {}  # what is lost without each name
_missing: dict[str, str] = {}
_told: set[str] = set()


def look_up(name: str, loss: str) -> Any:
    """Return what a private name stands for; ``None`` where its package has no such name.

    ``name``: such as ``awkward._nplikes.virtual:VirtualNDArray``.
    ``loss``: what is done without it, and what that costs.
    """
    module, _, attribute = name.partition(":")
    found = None
    if not _switched_off(name):
        try:
            found = attrgetter(attribute)(import_module(module))
        except (ImportError, AttributeError):
            found = None
    _note(name, loss, there=found is not None)
    return found


def is_there(name: str, owner: Any, loss: str) -> bool:
    """Tell whether an object has the attribute with which a name ends; see :func:`look_up`."""
    there = not _switched_off(name) and hasattr(owner, re.split("[.:]", name)[-1])
    _note(name, loss, there=there)
    return there


def all_names() -> dict[str, str]:
    """Return the names that were looked up, each with what is lost without it."""
    return dict(_looked_up)


def missing_names() -> dict[str, str]:
    """Return the names that are missing, each with what is lost without it."""
    return dict(_missing)


def warn_of_missing() -> None:
    """Warn of the names that are missing, once in a process."""
    new = {name: loss for name, loss in _missing.items() if name not in _told}
    if not new:
        return
    _told.update(new)
    by_loss: dict[str, list[str]] = {}
    for name, loss in new.items():
        by_loss.setdefault(loss, []).append(name)
    lost = "; ".join(f"{', '.join(names)}: {loss}" for loss, names in by_loss.items())
    warnings.warn(
        f"an installed package lacks what hepcache is made for, and results stay the same: {lost}",
        stacklevel=4,
    )


def _note(name: str, loss: str, *, there: bool) -> None:
    _looked_up[name] = loss
    if not there:
        _missing[name] = loss


def _switched_off(name: str) -> bool:
    return name in os.environ.get(WITHOUT, "").split(",")
