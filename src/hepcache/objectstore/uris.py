"""Open the store that a URI names."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import signature
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hepcache.credentials import url_problem
from hepcache.errors import ConfigurationError
from hepcache.objectstore.daos import open_daos
from hepcache.objectstore.directory import open_directory
from hepcache.objectstore.memory import open_memory
from hepcache.objectstore.rados import RadosStore
from hepcache.objectstore.store import Store

_STORE = re.compile(r"(?i)^(?:ntpl\+[a-z0-9+]+|rados|daos)://")
_CLOUD = ("ntpl+az", "ntpl+gs", "ntpl+s3", "ntpl+s3+http", "ntpl+s3+https")
_OPENERS: dict[str, Callable[..., Store]] = {
    "daos": open_daos,
    "ntpl+daos": open_daos,
    "ntpl+file": open_directory,
    "ntpl+mem": open_memory,
    "ntpl+rados": RadosStore,
    "rados": RadosStore,
}


def is_store_uri(path: str) -> bool:
    """Return whether ``path`` names an ntuple in an object store, and not a file.

    Examples
    --------
    >>> is_store_uri("rados://hep/zee"), is_store_uri("s3://bucket/file.root")
    (True, False)
    """
    return bool(_STORE.match(path))


def open_store(uri: str, **options: Any) -> Store:
    """Open the store that a URI names.

    Parameters
    ----------
    uri
        ``ntpl+s3+https://host/bucket/path`` (or ``http``, as ROOT writes it),
        ``ntpl+s3://bucket/path`` (Amazon), ``ntpl+gs://``, ``ntpl+az://``,
        ``rados://pool/path``, ``daos://pool/container/name``,
        ``ntpl+file:///directory``, ``ntpl+mem://name``. Options may follow
        a question mark, but never credentials.
    **options
        The store's options, see its class. They override those of the URI.

    Raises
    ------
    ConfigurationError
        The URI or an option is invalid.
    ObjectStoreError
        The store can't be reached.
    ImportError
        The library for the store is missing; the message says how to get it.
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    opener = _OPENERS.get(scheme)
    if scheme in _CLOUD:
        from hepcache.objectstore.cloud import open_cloud  # needs obstore, which is optional

        opener = open_cloud
    if opener is None:
        known = ", ".join(sorted([*_CLOUD, *_OPENERS]))
        raise ConfigurationError("URI", f"one of {known} and ://", uri)
    problem = url_problem(uri)
    if problem:
        raise ConfigurationError("URI", "one with neither key nor secret", f"{uri} ({problem})")
    if parts.fragment or "@" in parts.netloc:
        raise ConfigurationError(
            "URI", "neither '#' nor '@': credentials come from the environment or options", uri
        )
    given = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **options}
    plain_uri = uri.partition("?")[0].rstrip("/")
    # The first two parameters are the URI, plain and in parts; the others are options.
    allowed = list(signature(opener).parameters)[2:]
    for name in given:
        if name not in allowed:
            raise ConfigurationError(
                f"option of {plain_uri}", f"one of {', '.join(allowed)}", name
            )
    return opener(plain_uri, parts, **given)
