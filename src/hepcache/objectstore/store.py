"""The Protocol that every object store follows, and how a URI leads to one.

A store is one place inside a service: a prefix in a bucket, a pool or a
directory, which holds one ntuple. Names are relative to it:

``""``
    the object at the URI itself, which is where ROOT keeps the anchor on S3;
``"12"``, ``"cluster/3"``
    objects below the URI: ``URI/12``;
``".pages/12"``
    a name that begins with a dot stands beside the URI: ``URI.pages/12``.
    S3 gateways that keep objects as files (versitygw, for one) can't hold
    both an object ``URI`` and objects below it, but can hold this.

So ROOT's template ``${baseurl}/${objid}`` is the name ``"12"``, and
``${baseurl}.pages/${objid}`` is ``".pages/12"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import parse_qsl, urlsplit

from hepcache.errors import ConfigurationError
from hepcache.fileset.paths import is_store_uri

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Request", "Store", "check_prefix", "is_store_uri", "join_name", "open_store"]

_MODULES = {
    "ntpl+mem": "memory",
    "ntpl+file": "directory",
    "ntpl+s3+http": "cloud",
    "ntpl+s3+https": "cloud",
    "ntpl+s3": "cloud",
    "ntpl+gs": "cloud",
    "ntpl+az": "cloud",
    "rados": "rados",
    "ntpl+rados": "rados",
    "daos": "daos",
    "ntpl+daos": "daos",
}


class Request(NamedTuple):
    """One range of one object.

    Attributes
    ----------
    name
        The object's name in its store.
    start, length
        First byte and number of bytes.
    """

    name: str
    start: int
    length: int


class Pending(Protocol):
    """Ranges that are on their way."""

    def result(self) -> Sequence[Buffer]:
        """Return what :meth:`Store.read` does, when all of it is there; asked for once."""

    def cancel(self) -> object:
        """Let go of them: the result will not be asked for."""


@runtime_checkable
class Store(Protocol):
    """One place in an object store; see this module for how objects are named.

    All methods may be called from many threads at once. What they raise is an
    :class:`~hepcache.errors.ObjectStoreError`: ``ObjectMissingError`` where
    an object or its bucket does not exist, ``ObjectDamagedError`` where it
    ends before a range does, ``ObjectAccessError`` where credentials are
    refused. Transient failures are tried again, with growing pauses, before
    anything is raised.

    A store may have a method ``begin``, which takes what :meth:`read` does
    and memory of at least that size, which the ranges may be put in. It
    begins with them as far as that needs no waiting, and returns a
    :class:`Pending`: what its bytes are decoded by waits for them, and no
    other thread has to be woken in between. One where ROOT has keys of its
    own has an attribute ``root_keys``, see
    :class:`~hepcache.objectstore.rootanchor.RootKeys`.

    Attributes
    ----------
    uri
        Where the store is, without its options: it may be shown to anybody.
    limit
        Bytes of the largest object that it takes.
    """

    @property
    def uri(self) -> str:
        """Where the store is."""

    @property
    def limit(self) -> int:
        """Bytes of the largest object."""

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole; one that has the name is replaced."""

    def put_anchor(self, name: str, data: Buffer) -> None:
        """Store a small object so that a reader sees all of it or nothing, and durably.

        What was put before is stored when this returns.
        """

    def get(self, name: str) -> bytes:
        """Return an object whole."""

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, each of exactly the length asked for."""

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects in the order of the requests.

        They are read concurrently, a bounded number at a time. The first that
        fails ends the others.
        """

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects, in no order.

        ``""`` gives all that stands at the URI or below it; ``"cluster/"``
        what stands below that, ``".pages/"`` what stands beside the URI.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; names without an object are ignored."""

    def close(self) -> None:
        """Let go of connections and handles; the store can't be used any more."""


def join_name(base: str, name: str) -> str:
    """Return an object's key in its service.

    Parameters
    ----------
    base
        The key of the store's URI.
    name
        The object's name in the store.

    Raises
    ------
    ConfigurationError
        The name is absolute, has empty parts, or would leave its place.

    Examples
    --------
    >>> join_name("run3/zee", "12"), join_name("run3/zee", ".pages/12"), join_name("run3/zee", "")
    ('run3/zee/12', 'run3/zee.pages/12', 'run3/zee')
    """
    # A name may come from an anchor that somebody else wrote.
    parts = name.split("/")
    if (name and not all(part and part.strip(".") for part in parts)) or "\0" in name:
        raise ConfigurationError("object name", "parts between single slashes, none of dots", name)
    if not name or name.startswith(".") or not base:
        return base + name
    return f"{base}/{name}"


def check_prefix(prefix: str) -> str:
    """Return what :meth:`Store.list` was given, if it has a meaning.

    Raises
    ------
    ConfigurationError
        It neither is empty nor ends with a slash, or is no name.
    """
    if prefix:
        join_name("", prefix.removesuffix("/"))
        if not prefix.endswith("/") or prefix == "/":
            raise ConfigurationError("prefix of object names", "'' or one that ends in /", prefix)
    return prefix


def open_store(uri: str, **options: Any) -> Store:
    """Open the store that a URI names.

    Parameters
    ----------
    uri
        ``ntpl+s3+https://host/bucket/path`` (or ``http``, as ROOT writes it),
        ``ntpl+s3://bucket/path`` (Amazon), ``ntpl+gs://``, ``ntpl+az://``,
        ``rados://pool/path``, ``daos://pool/container/name``,
        ``ntpl+file:///directory``, ``ntpl+mem://name``. Options may stand
        behind a question mark, but never credentials.
    **options
        The store's options, see its class. They win over those of the URI.

    Raises
    ------
    ConfigurationError
        The URI or an option has no meaning.
    ObjectStoreError
        The store can't be reached.
    ImportError
        The library for the store is missing; the message says how to get it.
    """
    parts = urlsplit(uri)
    module = _MODULES.get(parts.scheme.lower())
    if module is None:
        raise ConfigurationError("URI", f"one of {', '.join(sorted(_MODULES))} and ://", uri)
    if parts.fragment or "@" in parts.netloc:
        raise ConfigurationError(
            "URI", "neither '#' nor '@': credentials come from the environment or options", uri
        )
    given = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **options}
    plain = uri.partition("?")[0].rstrip("/")
    loaded = import_module(f"hepcache.objectstore.{module}")
    # The first two parameters are the URI, plain and in parts; the others are options.
    known = list(signature(loaded.open_uri).parameters)[2:]
    for name in given:
        if name not in known:
            raise ConfigurationError(f"option of {plain}", f"one of {', '.join(known)}", name)
    store: Store = loaded.open_uri(plain, parts, **given)
    return store
