"""All that hepcache uses of coffea and awkward without their promise to keep it.

Everything here is exercised by ``tests/process/test_upstream.py``, so that an
upgrade that changes it fails there, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, SupportsIndex

import awkward as ak
import numpy as np
from awkward._backends.numpy import NumpyBackend
from awkward._nplikes.shape import unknown_length as UNKNOWN  # noqa: N812 - it is a constant
from awkward._nplikes.virtual import VirtualNDArray
from awkward._util import native_byteorder
from awkward.forms.form import index_to_dtype
from awkward.operations.ak_from_buffers import _reconstitute
from coffea import processor as coffea_processor
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
    "UNKNOWN",
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
    "coffea_processor",
    "coffea_work",
    "compress",
    "decompress",
    "index_to_dtype",
    "key_to_tuple",
    "lazy_record",
    "made_of_buffers",
    "reads_podio_metadata",
    "tuple_to_key",
    "virtual_buffer",
]

# Asking awkward for its singletons costs more than what they are wanted for.
_BACKEND = NumpyBackend.instance()
_NPLIKE = _BACKEND.nplike

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


class _LazyRecord(ak.contents.RecordArray):
    """A record array that believes its length, instead of making all contents to check it.

    Every content is made of that length. Whoever asks, even for the class,
    sees a plain record array, and a copy elsewhere is one.
    """

    _length: Any
    _length_generator: Any

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return ak.contents.RecordArray

    @property
    def length(self) -> Any:
        """The number of entries."""
        if self._length is UNKNOWN:
            self._length = self._length_generator()
            self._length_generator = None
        return self._length

    def __reduce__(self) -> tuple[Any, ...]:
        return _plain_record, (list(self._contents), self._fields, self.length, self._parameters)


def _plain_record(*values: Any) -> ak.contents.RecordArray:
    contents, fields, length, parameters = values
    return ak.contents.RecordArray(contents, fields, length, parameters=parameters)


def lazy_record(
    fields: Sequence[str],
    length: Any,
    parameters: dict[str, Any],
    make: Callable[[int], ak.contents.Content],
    length_generator: Callable[[], int] | None = None,
) -> ak.contents.RecordArray:
    """Return a record array whose contents are made when they are touched.

    Parameters
    ----------
    fields
        Names of the fields.
    length
        Number of entries; ``UNKNOWN`` until ``length_generator`` is asked.
    parameters
        The record's parameters.
    make
        Makes the content of a position, of at least ``length`` entries.
    length_generator
        Returns the length.
    """
    record = _LazyRecord([], [], 0, parameters=parameters)
    record._length, record._length_generator = length, length_generator  # noqa: SLF001
    record._contents = LazyContents(make, len(fields))  # noqa: SLF001
    record._fields = list(fields)
    return record


def made_of_buffers(
    form: ak.forms.Form,
    length: Any,
    buffers: Mapping[str, Callable[[], Any]],
    name: Callable[..., str],
    shape: Callable[[], tuple[int]],
    keep: Callable[[str, str], bool],
) -> ak.contents.Content:
    """Return what ``ak.from_buffers`` makes of a form, also where its length isn't known yet.

    Parameters
    ----------
    form
        The form.
    length
        Number of entries; ``UNKNOWN`` until ``shape`` is asked.
    buffers
        Buffer name to a function that returns the buffer.
    name
        Returns a buffer's name, called with ``form_key``, ``attribute`` and ``form``.
    shape
        Returns the number of entries.
    keep
        Tells of a form key and an attribute whether the buffer stays in the
        array once it was used.
    """
    return _reconstitute(
        form, length, buffers,
        lambda one, attribute: name(form_key=one.form_key, attribute=attribute, form=one),
        _BACKEND, native_byteorder, False, shape, keep,
    )  # fmt: skip


def virtual_buffer(
    buffer: Callable[[], Any],
    name: str,
    dtype: Any,
    length: Any,
    shape: Callable[[], tuple[int]],
    *,
    keep: bool,
) -> Any:
    """Return a buffer that is loaded when it is used, as ``ak.from_buffers`` makes it.

    Parameters
    ----------
    buffer
        Returns the buffer.
    name
        Its name.
    dtype
        Type of its elements.
    length
        Number of elements; ``UNKNOWN`` until ``shape`` is asked.
    shape
        Returns the number of elements.
    keep
        Whether the buffer stays once it was used.

    Returns
    -------
    VirtualNDArray
        Shape ``(length,)``; using it raises TypeError where the buffer is shorter.
    """
    counts: list[tuple[int]] = []

    def once() -> tuple[int]:
        if not counts:
            counts.append(shape())
        return counts[0]

    def load() -> Any:
        (count,) = once()
        array = np.asarray(buffer()).view(dtype).reshape(-1)
        if array.size < count:
            raise TypeError(f"size of array ({array.size}) is less than size of form ({count})")
        return array[:count]

    load.__awkward_raw_generator__ = buffer  # type: ignore[attr-defined]
    return VirtualNDArray(
        _NPLIKE, (length,), dtype, load, once, name,
        __enable_caching__=keep,
    )  # fmt: skip
