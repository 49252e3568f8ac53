"""From values to columns and back: one product, or a column of many."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ProductTypeError
from hepcache.eventstore.ref import Ref
from hepcache.eventstore.schema import Schema, flat_dtype, flat_type
from hepcache.eventstore.typed import column_type, plain_array, schema_of

__all__ = ["as_array", "as_column", "columns_of", "pack", "unpack", "value_of"]

Column = Any  # an ndarray for a plain column, an ak.Array for every other


def columns_of(value: Any, schema: Schema) -> tuple[int | None, dict[str, Column]]:
    """Return the rows of one product as columns.

    Returns
    -------
    count
        Number of rows, or None for a product of exactly one.
    columns
        Name to flat column.

    Raises
    ------
    ProductTypeError
        The value is of another type.
    """
    found = schema_of(value)
    if found != schema:
        raise ProductTypeError(str(schema), str(found))
    if schema.kind in ("bytes", "ref", "arrow"):
        data = np.frombuffer(_as_bytes(value), np.uint8)
        return len(data), {"": data}
    if schema.kind == "numpy":
        array = np.asarray(value)
        rows = array.reshape(1, *array.shape) if schema.layout == "one" else array
        if schema.is_record:
            columns = {name: as_column(rows[name], schema.types[name]) for name in schema.names}
        else:
            columns = {"": as_column(rows, schema.types[""])}
        return (None if schema.layout == "one" else len(rows)), columns
    if schema.layout == "one":
        at = value.layout.at
        return None, split(ak.Array(value.layout.array[at : at + 1]), schema)
    return len(value), split(value, schema)


def split(rows: ak.Array, schema: Schema) -> dict[str, Column]:
    """Return the columns of an awkward array of rows."""
    if not schema.is_record:
        return {"": as_column(rows, schema.types[""])}
    return {name: as_column(rows[name], schema.types[name]) for name in schema.names}


def as_column(column: Any, type_: str) -> Column:
    """Return a column in the form in which it is kept.

    Raises
    ------
    ProductTypeError
        It is of another type.
    """
    plain = flat_dtype(type_)
    if plain is None:
        given = column if isinstance(column, ak.Array) else ak.Array(column)
        found = column_type(given)
        if found != type_:
            raise ProductTypeError(type_, found)
        return given
    array = column if isinstance(column, np.ndarray) else plain_array(ak.to_layout(column))
    if array is None:
        raise ProductTypeError(type_, column_type(column))
    if array.dtype.newbyteorder("=") != plain[0] or array.shape[1:] != plain[1]:
        raise ProductTypeError(type_, flat_type(array.dtype, array.shape[1:]))
    return np.ascontiguousarray(array, dtype=plain[0])


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, Ref):
        return value.to_bytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    import pyarrow as pa

    if isinstance(value, pa.Table):
        batches, schema = value.to_batches(), value.schema
    elif isinstance(value, pa.RecordBatch):
        batches, schema = [value], value.schema
    else:
        table = pa.table({"": value})
        batches, schema = table.to_batches(), table.schema
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def value_of(schema: Schema, columns: Mapping[str, Column]) -> Any:
    """Return one product from its rows."""
    if schema.kind == "numpy":
        if schema.is_record:
            # A part of the columns is a part of the record.
            dtype = schema.dtype if len(columns) == len(schema.names) else schema.dtype[[*columns]]
            rows: Any = np.empty(len(next(iter(columns.values()))), dtype)
            for name, column in columns.items():
                rows[name] = column
        else:
            rows = columns[""]
        return rows[0] if schema.layout == "one" else rows
    if schema.kind == "awkward":
        array = as_array(schema, columns)
        return array[0] if schema.layout == "one" else array
    data = bytes(columns[""])
    if schema.kind == "bytes":
        return data
    if schema.kind == "ref":
        return Ref.from_bytes(data)
    return _arrow_value(data, (schema.record or "").partition(" ")[0])


def _arrow_value(data: bytes, kind: str) -> Any:
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    if kind == "table":
        return table
    if kind == "batch":
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
    column = table.column(0).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def as_array(
    schema: Schema, columns: Mapping[str, Column], offsets: NDArray[np.int64] | None = None
) -> ak.Array:
    """Return columns as an awkward array of rows, or of lists of rows with offsets."""
    contents = [_content(column) for column in columns.values()]
    if schema.is_record:
        parameters = {"__record__": schema.record} if schema.record else None
        layout: Any = ak.contents.RecordArray(contents, list(columns), parameters=parameters)
    else:
        layout = contents[0]
    if offsets is not None:
        layout = ak.contents.ListOffsetArray(ak.index.Index64(offsets), layout)
    return ak.Array(layout)


def _content(column: Column) -> Any:
    if isinstance(column, np.ndarray):
        content = ak.contents.NumpyArray(column)
        return content.to_RegularArray() if column.ndim > 1 else content
    return column.layout


def pack(column: Column) -> list[bytes | memoryview]:
    """Return a column's bytes: a plain one as it is, every other with a description.

    The parts are to be joined.
    """
    if isinstance(column, np.ndarray):
        # Not every dtype has a buffer interface (datetime64), but every one has bytes.
        return [np.ascontiguousarray(column).reshape(-1).view(np.uint8).data]
    form, length, buffers = ak.to_buffers(ak.to_packed(column))
    arrays = {name: np.ascontiguousarray(buffer) for name, buffer in buffers.items()}
    head = json.dumps(
        [form.to_dict(), length, [[name, array.nbytes] for name, array in arrays.items()]]
    ).encode()
    parts: list[bytes | memoryview] = [len(head).to_bytes(4, "little"), head]
    parts += [array.reshape(-1).view(np.uint8).data for array in arrays.values()]
    return parts


def unpack(data: memoryview, type_: str) -> Column:
    """Return the column that :func:`pack` wrote; its arrays are views of ``data``."""
    plain = flat_dtype(type_)
    if plain is not None:
        dtype, shape = plain
        array = np.frombuffer(data, dtype)
        return array.reshape(-1, *shape) if shape else array
    size = int.from_bytes(data[:4], "little")
    form, length, sizes = json.loads(bytes(data[4 : 4 + size]))
    position = 4 + size
    buffers = {}
    for name, nbytes in sizes:
        buffers[name] = np.frombuffer(data[position : position + nbytes], np.uint8)
        position += nbytes
    return ak.from_buffers(ak.forms.from_dict(form), length, buffers)
