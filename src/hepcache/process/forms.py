"""Forms: what the branches of a tree look like, and how a schema presents them.

Parsing a tree of 2000 branches and building NanoAOD's schema takes longer
than decompressing the columns that an analysis reads. Both depend on the
branch list alone, so they are kept: on the SSD for the host, and ready to use
in the process. A new file whose branches are known needs neither.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Protocol
from urllib.parse import quote

import awkward as ak
import xxhash
import zstandard

from hepcache.cache.column_cache import ColumnCache
from hepcache.errors import OriginError
from hepcache.formats.registry import open_source
from hepcache.formats.source import ColumnTree, TreeRef
from hepcache.formats.ttree.branch_table import BranchTable, branches_digest
from hepcache.telemetry import ReadLog
from hepcache.upstream import coffea as upstream


@dataclass(frozen=True, slots=True)
class SchemaForm:
    """What a schema makes of a branch list, without anything of one file.

    ``uncached``: why coffea itself must read the events; ``""`` where they come from the cache.
    """

    schema: Any
    form: dict[str, Any]
    record: ak.forms.RecordForm
    columns: frozenset[str]
    uncached: str = ""

    def require_cached(self) -> None:
        """Raise ``UncachedError`` where coffea itself must read the events."""
        if self.uncached:
            raise UncachedError(self.uncached)


class UncachedError(Exception):
    """The events of a file can't be made of cached columns: coffea itself must read them."""


# Another release of these may make another form of the same branches.
_RELEASES = "-".join(version(name) for name in ("coffea", "uproot", "awkward"))
_KIND = f"tree-forms-{_RELEASES}"
_DIGEST = 16  # bytes


class OtherForms(Protocol):
    """Gets forms from other hosts."""

    def form(self, kind: str, name: str, *, last_resort: bool = False) -> bytes | None:
        """Return a packed form if one of them has it; ``last_resort``: the origin has failed."""
        ...


class FormCache:
    """Forms that a process has made, by file and by list of branches."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, ...], str] = {}
        # Files of one branch list share one text, so that its form is shared too.
        self._interned = lru_cache(maxsize=64)(str)
        self._shared = lru_cache(maxsize=16)(_built)

    def form(
        self,
        ref: TreeRef,
        schema: type,
        cache: ColumnCache | None,
        iteritems_options: Mapping[str, Any],
        log: ReadLog,
        others: OtherForms | None = None,
    ) -> SchemaForm:
        """Return a schema's form for a tree; the origin is asked only the first time.

        ``cache``: where the host keeps base forms, or ``None``.
        ``iteritems_options``: options for ``tree.iteritems``. Those that hold functions have no
        lasting name, so with them the form is made anew for each chunk.
        ``log``: where bytes requested from the origin are counted.
        ``others``: other hosts, asked before the origin and, more patiently, where that fails.
        Raises ``OriginError``: the form is not known, and the origin can't be read.
        """
        variant = _variant(iteritems_options)
        if variant is None:
            return _built(json.dumps(_from_origin(ref, schema, iteritems_options, log)), schema)
        podio = upstream.reads_podio_metadata(schema)
        variant = f"-podio{variant}" if podio else variant
        key = (ref.uuid, ref.tag, ref.tree, ref.path if podio else "", variant)
        text = self._texts.get(key)
        if text is None:
            name = f"{ref.content}-{quote(ref.tree, safe='')}{variant}"
            text = _stored(name, cache)
            if text is None:
                text = _other_hosts(name, others)
                try:
                    text = text or _new(ref, schema, cache, iteritems_options, variant, log)
                except OriginError:
                    text = _other_hosts(name, others, last_resort=True)
                    if text is None:
                        raise
                _store(name, cache, text)
            self._texts[key] = text = self._interned(text)
        return self._shared(text, schema)

    def forget(self) -> None:
        """Drop every form."""
        self._texts.clear()
        self._interned.cache_clear()
        self._shared.cache_clear()


def _variant(options: Mapping[str, Any]) -> str | None:
    """Return a part of a name that stands for options; ``None`` where they hold functions."""
    if not options:
        return ""
    try:
        text = json.dumps(options, sort_keys=True)
    except TypeError:
        return None
    return f"-{xxhash.xxh3_128_hexdigest(text.encode())}"


def _other_hosts(name: str, others: OtherForms | None, *, last_resort: bool = False) -> str | None:
    if others is None:
        return None
    return _unpacked_form(_KIND, name, others.form(_KIND, name, last_resort=last_resort))


def _new(
    ref: TreeRef,
    schema: type,
    cache: ColumnCache | None,
    options: Mapping[str, Any],
    variant: str,
    log: ReadLog,
) -> str:
    """Return the base form of a file that is new here; its branches may be known all the same."""
    tree = open_source(ref).tree
    if upstream.reads_podio_metadata(schema) or not isinstance(tree, BranchTable):
        return json.dumps(_from_origin(ref, schema, options, log))
    name = f"branches-{branches_digest(tree.branches)}{variant}"
    text = _stored(name, cache)
    if text is None:
        text = json.dumps(_from_origin(ref, schema, options, log))
        _store(name, cache, text)
    return text


def _from_origin(
    ref: TreeRef, schema: type, options: Mapping[str, Any], log: ReadLog
) -> dict[str, Any]:
    source = open_source(ref)
    # A table answers what coffea asks of every tree, not what options may ask.
    plain = not options and not upstream.reads_podio_metadata(schema)
    tree = source.tree if plain else source.whole_tree
    own = tree.own_form() if isinstance(tree, ColumnTree) else None
    form = upstream.base_form(tree, schema, dict(options)) if own is None else own
    source.account(log)
    return form


def _built(text: str, schema: type) -> SchemaForm:
    base = json.loads(text)
    uncached = base.pop("uncached", "")
    # Schemas write into the metadata; each chunk brings its own later.
    base["parameters"]["metadata"] = {}
    columns = frozenset(base["fields"])
    made = schema(base)
    return SchemaForm(made, made.form, ak.forms.from_dict(made.form), columns, uncached)


def packed_form(kind: str, name: str, cache: ColumnCache) -> bytes | None:
    """Return a form that a host keeps, as it travels: a checksum, then the compressed text."""
    text = _stored(name, cache, kind)
    if text is None:
        return None
    raw = text.encode()
    return _checksum(kind, name, raw) + zstandard.compress(raw)


def _unpacked_form(kind: str, name: str, packed: bytes | None) -> str | None:
    """Return a form's text; ``None`` where it is damaged, another's, or there is none."""
    if packed is None:
        return None
    try:
        raw = zstandard.decompress(packed[_DIGEST:])
    except (zstandard.ZstdError, MemoryError):
        return None
    return raw.decode() if _checksum(kind, name, raw) == packed[:_DIGEST] else None


def _checksum(kind: str, name: str, raw: bytes) -> bytes:
    # The name is part of it, so that another file's form is none.
    label = f"{kind}\0{name}\0".encode("utf-8", "surrogatepass")
    return xxhash.xxh3_128_digest(label + raw)


def _stored(name: str, cache: ColumnCache | None, kind: str = _KIND) -> str | None:
    if cache is None:
        return None
    digest = cache.blob_get(kind, name)
    packed = None if digest is None else cache.blob_get("forms", digest.decode())
    return None if packed is None else zstandard.decompress(packed).decode()


def _store(name: str, cache: ColumnCache | None, text: str) -> None:
    if cache is None:
        return
    raw = text.encode()
    digest = xxhash.xxh3_128_hexdigest(raw)
    cache.blob_put("forms", digest, zstandard.compress(raw))
    cache.blob_put(_KIND, name, digest.encode())
