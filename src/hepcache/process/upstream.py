"""All that hepcache uses of coffea and awkward without their promise to keep it.

Everything here is exercised by ``tests/process/test_upstream.py``, so that an
upgrade that changes it fails there, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, SupportsIndex

import awkward as ak
from coffea.nanoevents.factory import _key_formatter
from coffea.nanoevents.factory import _reads_podio_metadata as reads_podio_metadata
from coffea.nanoevents.mapping.base import Accessed, BaseSourceMapping
from coffea.nanoevents.mapping.uproot import UprootSourceMapping
from coffea.nanoevents.schemas.edm4hep import podio_collection_types
from coffea.nanoevents.util import key_to_tuple, tuple_to_key
from coffea.processor.executor import DaskExecutor, ExecutorBase, FileMeta, Runner, WorkItem
from coffea.processor.executor import _compress as compress
from coffea.processor.executor import _decompress as decompress

__all__ = [
    "Accessed",
    "BaseSourceMapping",
    "DaskExecutor",
    "ExecutorBase",
    "FileMeta",
    "LazyContents",
    "Runner",
    "WorkItem",
    "base_form",
    "buffer_key",
    "coffea_work",
    "compress",
    "decompress",
    "key_to_tuple",
    "lazy_record",
    "reads_podio_metadata",
    "tuple_to_key",
]

# What coffea's Runner does with one work item.
coffea_work = Runner._work_function  # noqa: SLF001


def base_form(tree: Any, schema: type, iteritems_options: dict[str, Any]) -> dict[str, Any]:
    """Return the form that coffea hands to a schema, of an open uproot tree.

    Parameters
    ----------
    tree
        A TTree or RNTuple opened with uproot.
    schema
        The schema's class; EDM4HEP's wants more than the branches.
    iteritems_options
        Options for ``tree.iteritems``, as coffea's Runner takes them.
    """
    form: dict[str, Any] = UprootSourceMapping._extract_base_form(  # noqa: SLF001
        tree, iteritems_options=iteritems_options
    )
    form["typenames"] = tree.typenames()
    if reads_podio_metadata(schema):
        form["podio_collection_types"] = podio_collection_types(tree)
    return form


def buffer_key(partition: tuple[str, str, str]) -> Callable[..., str]:
    """Return coffea's function that names the buffers of one chunk's events.

    Parameters
    ----------
    partition
        File UUID, tree and entry range ``"start-stop"``.
    """
    return partial(_key_formatter, tuple_to_key(partition))


class LazyContents(list[Any]):
    """Contents of a record array, each made when it is first asked for.

    Parameters
    ----------
    make
        Makes the content of a position.
    length
        Number of contents.
    """

    def __init__(self, make: Callable[[int], ak.contents.Content], length: int) -> None:
        super().__init__([None] * length)
        self._make = make

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        content = super().__getitem__(index)
        if content is None:
            content = self._make(range(len(self))[index])
            super().__setitem__(index, content)
        return content

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return (self[i] for i in reversed(range(len(self))))

    def __add__(self, other: list[Any]) -> list[Any]:
        return [*self, *other]

    def copy(self) -> list[Any]:
        """Return all contents, made."""
        return list(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy elsewhere holds what there is; it can't make more.
        return (list, (list(self),))

    @property
    def made(self) -> int:
        """Number of contents that exist."""
        return sum(content is not None for content in super().__iter__())


def lazy_record(
    fields: Sequence[str],
    length: int,
    parameters: dict[str, Any],
    make: Callable[[int], ak.contents.Content],
) -> ak.contents.RecordArray:
    """Return a record array whose contents are made when they are touched.

    ``ak.from_buffers`` makes an object for each of some three thousand
    buffers of a NanoAOD form, although a processor touches a hundred. What
    is made here is equal to what ``ak.from_buffers`` makes, later.

    Parameters
    ----------
    fields
        Names of the fields.
    length
        Number of entries.
    parameters
        The record's parameters.
    make
        Makes the content of a position, of at least ``length`` entries.
    """
    record = ak.contents.RecordArray([], [], length, parameters=parameters)
    record._contents = LazyContents(make, len(fields))  # noqa: SLF001
    record._fields = list(fields)
    return record
