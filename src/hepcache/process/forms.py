"""Forms: what the branches of a tree look like, and how a schema presents them.

Parsing a tree of 2656 branches and building NanoAOD's schema takes longer
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
from typing import Any
from urllib.parse import quote

import awkward as ak
import xxhash
import zstandard

from hepcache.cache.store import ColumnCache
from hepcache.columns.opening import open_source
from hepcache.columns.source import TreeRef
from hepcache.columns.table import Table
from hepcache.columns.tablefile import branches_digest
from hepcache.process import upstream
from hepcache.telemetry import ReadLog

__all__ = ["SchemaForm", "forget_forms", "schema_form"]


@dataclass(frozen=True, slots=True)
class SchemaForm:
    """What a schema makes of a branch list, without anything of one file.

    Attributes
    ----------
    schema
        The schema's object.
    form
        Its form as a dict, as coffea keeps it.
    record
        The same as awkward's form.
    columns
        Names of the tree's columns.
    """

    schema: Any
    form: dict[str, Any]
    record: ak.forms.RecordForm
    columns: frozenset[str]


# Another release of these may make another form of the same branches.
_RELEASES = "-".join(version(name) for name in ("coffea", "uproot", "awkward"))
_KIND = f"tree-forms-{_RELEASES}"
_base_forms: dict[tuple[str, str, str, str, bool], str] = {}


def schema_form(
    ref: TreeRef,
    schema: type,
    cache: ColumnCache | None,
    iteritems_options: Mapping[str, Any],
    log: ReadLog,
) -> SchemaForm:
    """Return a schema's form for a tree; the origin is asked only the first time.

    Parameters
    ----------
    ref
        The tree.
    schema
        The schema's class.
    cache
        Where the host keeps base forms, or ``None``.
    iteritems_options
        Options for ``tree.iteritems``. Some hold functions and have no
        lasting name, so with options the form is made anew for each chunk.
    log
        Where bytes requested from the origin are counted.

    Raises
    ------
    OriginError
        The form is not known, and the origin can't be read.
    """
    if iteritems_options:
        return _built(json.dumps(_from_origin(ref, schema, iteritems_options, log)), schema)
    podio = upstream.reads_podio_metadata(schema)
    key = (ref.uuid, ref.tag, ref.tree, ref.path if podio else "", podio)
    text = _base_forms.get(key)
    if text is None:
        name = f"{ref.content}-{quote(ref.tree, safe='')}{'-podio' if podio else ''}"
        text = _stored(name, cache)
        if text is None:
            text = _new(ref, schema, cache, log)
            _store(name, cache, text)
        _base_forms[key] = text = _interned(text)
    return _shared(text, schema)


def forget_forms() -> None:
    """Drop every form that this process holds."""
    _base_forms.clear()
    _interned.cache_clear()
    _shared.cache_clear()


def _new(ref: TreeRef, schema: type, cache: ColumnCache | None, log: ReadLog) -> str:
    """Return the base form of a file that is new here; its branches may be known all the same."""
    tree = open_source(ref).tree
    if upstream.reads_podio_metadata(schema) or not isinstance(tree, Table):
        return json.dumps(_from_origin(ref, schema, {}, log))
    name = f"branches-{branches_digest(tree.branches)}"
    text = _stored(name, cache)
    if text is None:
        text = json.dumps(_from_origin(ref, schema, {}, log))
        _store(name, cache, text)
    return text


def _from_origin(
    ref: TreeRef, schema: type, options: Mapping[str, Any], log: ReadLog
) -> dict[str, Any]:
    source = open_source(ref)
    # A table answers what coffea asks of every tree, not what options may ask.
    plain = not options and not upstream.reads_podio_metadata(schema)
    tree = source.tree if plain else source.whole_tree
    form = upstream.base_form(tree, schema, dict(options))
    source.account(log)
    return form


@lru_cache(maxsize=64)
def _interned(text: str) -> str:
    # Files of one branch list share one text, so that the form below is shared too.
    return text


@lru_cache(maxsize=16)
def _shared(text: str, schema: type) -> SchemaForm:
    return _built(text, schema)


def _built(text: str, schema: type) -> SchemaForm:
    base = json.loads(text)
    # Schemas write into the metadata; each chunk brings its own later.
    base["parameters"]["metadata"] = {}
    columns = frozenset(base["fields"])
    made = schema(base)
    return SchemaForm(made, made.form, ak.forms.from_dict(made.form), columns)


def _stored(name: str, cache: ColumnCache | None) -> str | None:
    if cache is None:
        return None
    digest = cache.blob_get(_KIND, name)
    packed = None if digest is None else cache.blob_get("forms", digest.decode())
    return None if packed is None else zstandard.decompress(packed).decode()


def _store(name: str, cache: ColumnCache | None, text: str) -> None:
    if cache is None:
        return
    raw = text.encode()
    digest = xxhash.xxh3_128_hexdigest(raw)
    cache.blob_put("forms", digest, zstandard.compress(raw))
    cache.blob_put(_KIND, name, digest.encode())
