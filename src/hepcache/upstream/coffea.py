"""All that hepcache uses of coffea without its promise to keep it.

``tests/upstream/test_coffea.py`` names each part, so that an upgrade that changes one
fails there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any
from urllib.parse import quote

import lz4.frame
from coffea import processor as coffea_processor
from coffea.nanoevents.mapping.base import Accessed, BaseSourceMapping
from coffea.nanoevents.mapping.parquet import ParquetSourceMapping
from coffea.nanoevents.mapping.uproot import UprootSourceMapping
from coffea.nanoevents.util import key_to_tuple, tuple_to_key
from coffea.processor.executor import (
    DaskExecutor,
    ExecutorBase,
    FileMeta,
    Runner,
    UprootMissTreeError,
    WorkItem,
)

try:
    from coffea.nanoevents.factory import _reads_podio_metadata as reads_podio_metadata
    from coffea.nanoevents.schemas.edm4hep import podio_collection_types
except ImportError:  # until 2026.7 no schema asks for them

    def reads_podio_metadata(_: Any) -> bool:
        """Tell whether a schema asks for the types of podio's collections: none does."""
        return False


__all__ = [
    "Accessed",
    "BaseSourceMapping",
    "DaskExecutor",
    "ExecutorBase",
    "FileMeta",
    "Runner",
    "UprootMissTreeError",
    "WorkItem",
    "base_form",
    "buffer_key",
    "coffea_processor",
    "coffea_work",
    "compress",
    "decompress",
    "exception_chain",
    "key_to_tuple",
    "parquet_form",
    "reads_podio_metadata",
    "tuple_to_key",
]

# What coffea's Runner does with one work item.
coffea_work = Runner._work_function  # noqa: SLF001

_OFFSETS = quote(",!offsets")


def compress(item: Any, level: int | None) -> Any:
    """Return a value as coffea sends it; ``level``: of lz4, ``None`` for the value itself."""
    if item is None or level is None:
        return item
    with BytesIO() as packed:
        # Through a stream, so that the pickle isn't there as a whole.
        with lz4.frame.open(packed, mode="wb", compression_level=level) as stream:
            pickle.dump(item, stream, pickle.HIGHEST_PROTOCOL)
        return packed.getvalue()


def decompress(item: Any) -> Any:
    """Return what :func:`compress` was given."""
    if not isinstance(item, bytes):
        return item
    with lz4.frame.open(BytesIO(item), mode="rb") as stream:
        return pickle.load(stream)  # noqa: S301 - what this cluster's own workers have made


def exception_chain(error: Any) -> list[BaseException]:
    """Return an exception and its causes, which is what coffea looks at to skip.

    ``error``: anything else, such as coffea's 0 where there is none, has no chain.
    """
    chain: list[BaseException] = []
    while isinstance(error, BaseException):
        chain.append(error)
        error = error.__cause__
    return chain


def base_form(tree: Any, schema: type, iteritems_options: dict[str, Any]) -> dict[str, Any]:
    """Return the form that coffea hands to a schema, of an open uproot tree.

    ``schema``: the schema's class; EDM4HEP's wants more than the branches.
    ``iteritems_options``: options for ``tree.iteritems``, as coffea's Runner takes them.
    """
    form: dict[str, Any] = UprootSourceMapping._extract_base_form(  # noqa: SLF001
        tree, iteritems_options=iteritems_options
    )
    form["typenames"] = tree.typenames()
    if reads_podio_metadata(schema):
        form["podio_collection_types"] = podio_collection_types(tree)
    return form


def parquet_form(schema: Any) -> dict[str, Any]:
    """Return the form that coffea hands to a schema, of a parquet file.

    ``schema``: as pyarrow has it.
    """
    form: dict[str, Any] = ParquetSourceMapping._extract_base_form(schema)  # noqa: SLF001
    return form


def buffer_key(partition: tuple[str, str, str]) -> Callable[..., str]:
    """Return a function that names the buffers of one chunk's events, as coffea does.

    ``partition``: file UUID, tree and entry range ``"start-stop"``.
    """
    return partial(_buffer_key, tuple_to_key(partition))


def _buffer_key(prefix: str, form_key: str, form: Any, attribute: str) -> str:  # noqa: ARG001
    return f"{prefix}/{attribute}/{form_key}{_OFFSETS if attribute == 'offsets' else ''}"
