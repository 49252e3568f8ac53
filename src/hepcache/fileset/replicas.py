"""Where a file lies: the places that a fileset names, and those that a setting makes of them."""

from __future__ import annotations

import re

from hepcache.fileset.model import FileSpec
from hepcache.io.transport import location
from hepcache.settings import settings

_NO_ROOT_FILE = re.compile(
    r"(?i)(?:events\+|ntpl\+|rados:|daos:)|.*\.(?:h5|hdf5|parquet|parq|pq)$"
)


def replica_problem(path: str) -> str:
    """Return why a path can be no place of several; ``""`` if it can.

    >>> replica_problem("root://server//a.root")
    ''
    """
    if _NO_ROOT_FILE.match(path):
        return "is read in another way; only ROOT files can have replicas"
    return ""


def places_of(spec: FileSpec) -> tuple[str, ...]:
    """Return the places of a file, in the order in which they are tried.

    These are its path and its replicas, each as the setting ``origin.replicas`` has it. Empty
    where the file lies at its path alone.
    """
    if replica_problem(spec.path) or not spec.path.strip():
        return ()
    stated = (spec.path, *spec.replicas)
    found = dict.fromkeys(location(place) for path in stated for place in _mapped(path))
    return () if list(found) == [location(spec.path)] else tuple(found)


def _mapped(path: str) -> list[str]:
    """Return the places that the longest prefix of a path stands for; the path if none does."""
    known = [known for known in settings().origin_replicas if path.startswith(known[0])]
    if not known:
        return [path]
    prefix, places = max(known, key=lambda known: len(known[0]))
    return [place + path.removeprefix(prefix) for place in places]
