"""The types of values: the schema under which each is stored."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ProductTypeError
from hepcache.eventstore.ref import Ref
from hepcache.eventstore.schema import Schema, flat_type

__all__ = ["column_type", "plain_array", "schema_of"]

_BYTES = (("", "uint8"),)


def schema_of(value: Any) -> Schema:
    """Return the schema under which a value would be stored.

    Raises
    ------
    ProductTypeError
        It is none of bytes, NumPy, awkward, Arrow, Ref.
    """
    if isinstance(value, np.ndarray | np.generic):
        return _numpy_schema(np.asarray(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return Schema("bytes", "rows", _BYTES)
    if isinstance(value, Ref):
        return Schema("ref", "rows", _BYTES)
    if isinstance(value, ak.Array):
        return _awkward_schema(value, "rows")
    if isinstance(value, ak.Record):
        return _awkward_schema(ak.Array(value.layout.array), "one")
    if type(value).__module__.partition(".")[0] == "pyarrow":
        return Schema("arrow", "rows", _BYTES, _arrow_type(value))
    raise ProductTypeError(
        "bytes, a NumPy array, an awkward array or record, an Arrow table, batch or array, "
        "or a Ref (numpy.asarray makes an array of Python numbers)",
        type(value).__name__,
    )


def _numpy_schema(value: NDArray[Any]) -> Schema:
    layout: Any = "one" if value.ndim == 0 else "rows"
    if value.dtype.names is None:
        return Schema("numpy", layout, (("", flat_type(value.dtype, value.shape[1:])),))
    if value.ndim > 1:
        raise ProductTypeError("a structured array of one dimension", f"{value.ndim} dimensions")
    columns = tuple(
        (name, flat_type(value.dtype[name].base, value.dtype[name].shape))
        for name in value.dtype.names
    )
    return Schema("numpy", layout, columns)


def _awkward_schema(value: ak.Array, layout: Any) -> Schema:
    fields = ak.fields(value)
    if fields and not value.layout.is_record:
        # An option or union of records: one column keeps it whole.
        fields = []
    if not fields or value.layout.is_tuple:
        return Schema("awkward", layout, (("", column_type(value)),))
    record = value.layout.parameter("__record__")
    return Schema(
        "awkward", layout, tuple((name, column_type(value[name])) for name in fields), record
    )


def column_type(column: Any) -> str:
    """Return the type string of a column: without its length and without documentation."""
    if isinstance(column, np.ndarray):
        return flat_type(column.dtype, column.shape[1:])
    layout = ak.to_layout(column)
    plain = plain_array(layout)
    if plain is not None:
        return flat_type(plain.dtype, plain.shape[1:])
    return str(ak.forms.from_dict(_undocumented(layout.form.to_dict())).type)


def plain_array(layout: Any) -> NDArray[Any] | None:
    """Return the array of a column without options, lists of variable length or names."""
    inner = layout
    while True:
        if inner.parameters and set(inner.parameters) - {"__doc__"}:
            return None
        if inner.is_numpy:
            break
        if not (inner.is_regular and not inner.is_option):
            return None
        inner = inner.content
    return np.asarray(ak.to_numpy(ak.Array(layout), allow_missing=False))


def _undocumented(form: Any) -> Any:
    """Return a form's description without the documentation of its branches."""
    if isinstance(form, dict):
        return {
            key: {k: v for k, v in value.items() if k != "__doc__"}
            if key == "parameters"
            else _undocumented(value)
            for key, value in form.items()
        }
    return [_undocumented(one) for one in form] if isinstance(form, list) else form


def _arrow_type(value: Any) -> str:
    import pyarrow as pa

    if isinstance(value, pa.Table | pa.RecordBatch):
        kind = "table" if isinstance(value, pa.Table) else "batch"
        fields = ", ".join(f"{field.name}: {field.type}" for field in value.schema)
        return f"{kind} {fields}"
    if isinstance(value, pa.Array):
        return f"array {value.type}"
    raise ProductTypeError("an Arrow table, record batch or array", type(value).__name__)
