"""Awkward contents made of a form: a record's fields when touched, buffers when used.

``ak.from_buffers`` makes several objects for each of some three thousand
buffers of a NanoAOD form, although a processor touches a hundred. What is
made here is equal to what it makes, field by field, later: the form is
projected to what the processor uses, without knowing it beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import awkward as ak

from hepcache.process.upstream import (
    UNKNOWN,
    index_to_dtype,
    lazy_record,
    made_of_buffers,
    virtual_buffer,
)

__all__ = ["Contents"]

Shape = Callable[[], tuple[int]]


class Contents:
    """Makes contents of forms, for one chunk.

    Parameters
    ----------
    buffers
        Buffer name to a function that returns the buffer.
    name
        Returns a buffer's name, as ``ak.from_buffers`` asks for it.
    keep
        Tells of a form key and an attribute whether the buffer stays in the
        array once it was used.
    """

    def __init__(
        self,
        buffers: Mapping[str, Callable[[], Any]],
        name: Callable[..., str],
        keep: Callable[[str, str], bool],
    ) -> None:
        self._buffers, self._name, self._keep = buffers, name, keep

    def make(self, form: ak.forms.Form, length: int) -> ak.contents.Content:
        """Return the content of a form, of ``length`` entries."""
        return self._make(form, length, lambda: (length,))

    def _make(self, form: ak.forms.Form, length: Any, shape: Shape) -> ak.contents.Content:
        if isinstance(form, ak.forms.RecordForm) and not form.is_tuple:
            return lazy_record(
                form.fields,
                length,
                form.parameters,
                lambda position: self._make(form.contents[position], length, shape),
                length_generator=lambda: shape()[0],
            )
        if isinstance(form, ak.forms.ListOffsetForm):
            return self._lists(form, length, shape)
        if isinstance(form, ak.forms.NumpyForm) and form.inner_shape == ():
            dtype = ak.types.numpytype.primitive_to_dtype(form.primitive)
            data = self._buffer(form, "data", dtype, length, shape)
            return ak.contents.NumpyArray(data, parameters=form.parameters)
        return made_of_buffers(form, length, self._buffers, self._name, shape, self._keep)

    def _buffer(
        self, form: ak.forms.Form, attribute: str, dtype: Any, length: Any, shape: Shape
    ) -> Any:
        name = self._name(form_key=form.form_key, attribute=attribute, form=form)
        keep = self._keep(form.form_key, attribute)
        return virtual_buffer(self._buffers[name], name, dtype, length, shape, keep=keep)

    def _lists(
        self, form: ak.forms.ListOffsetForm, length: Any, shape: Shape
    ) -> ak.contents.Content:
        offsets = self._buffer(
            form, "offsets", index_to_dtype[form.offsets], length + 1, lambda: (shape()[0] + 1,)
        )
        content = self._make(form.content, UNKNOWN, partial(_items, offsets))
        index = ak.index.Index(offsets)
        return ak.contents.ListOffsetArray(index, content, parameters=form.parameters)


def _items(offsets: Any) -> tuple[int]:
    """Return the number of items of all lists."""
    # Indexing what isn't loaded goes through all of awkward's dispatch.
    loaded = offsets.materialize()
    return (int(loaded[-1]) if len(loaded) > 1 else 0,)
