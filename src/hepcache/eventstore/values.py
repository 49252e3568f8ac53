"""From values to columns, from columns to bytes with a checksum, and back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import awkward as ak
import numpy as np
import xxhash
from numpy.typing import NDArray

from hepcache.errors import ProductTypeError, StoreError
from hepcache.eventstore.keys import Ref, describe_key
from hepcache.eventstore.schema import (
    Schema,
    column_type,
    flat_dtype,
    flat_type,
    plain_array,
    schema_of,
)

Column = Any  # an ndarray for a plain column, an ak.Array for every other
SEAL_BYTES = 8
_MOST_VERIFIED = 65536

_verified: set[bytes] = set()


def columns_of(value: Any, schema: Schema) -> tuple[int | None, dict[str, Column]]:
    """Return how many rows a product has, None if exactly one, and their columns."""
    found = schema_of(value)
    if found != schema:
        raise ProductTypeError(str(schema), str(found))
    if schema.kind in ("bytes", "ref", "arrow"):
        data = np.frombuffer(_as_bytes(value), np.uint8)
        return len(data), {"": data}
    if schema.kind == "numpy":
        if isinstance(value, str):
            return None, {"": ak.Array([str(value)])}
        array = np.asarray(value)
        rows = array.reshape(1, *array.shape) if schema.layout == "one" else array
        if schema.is_record:
            columns = {name: as_column(rows[name], schema.types[name]) for name in schema.names}
        else:
            columns = {"": as_column(rows, schema.types[""])}
        return (None if schema.layout == "one" else len(rows)), columns
    if schema.layout == "one":
        at = value.layout.at
        return None, _columns_of_rows(ak.Array(value.layout.array[at : at + 1]), schema)
    return len(value), _columns_of_rows(value, schema)


def _columns_of_rows(rows: ak.Array, schema: Schema) -> dict[str, Column]:
    """Return the columns of an awkward array of rows."""
    if not schema.is_record:
        return {"": as_column(rows, schema.types[""])}
    return {name: as_column(rows[name], schema.types[name]) for name in schema.names}


def as_column(column: Any, type_: str) -> Column:
    """Return a column as it is kept, or raise a ProductTypeError if it is of another type."""
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
        if schema.layout == "one" and schema.types.get("") in ("string", "bytes"):
            return columns[""][0]  # an array of NumPy's would lose a NUL at the end
        rows = _numpy_rows(schema, columns)
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


def _numpy_rows(schema: Schema, columns: Mapping[str, Column]) -> NDArray[Any]:
    """Return columns as one array, structured if the type is a record."""
    # A part of the columns is a part of the record.
    names = schema.names if len(columns) == len(schema.names) else columns
    arrays = {name: _numpy_column(columns[name], schema.types[name]) for name in names}
    if not schema.is_record:
        return arrays[""]
    rows = np.empty(
        len(next(iter(arrays.values()))),
        [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()],
    )
    for name, array in arrays.items():
        rows[name] = array
    return rows


def _numpy_column(column: Column, type_: str) -> NDArray[Any]:
    """Return a column as an array; one of text is as wide as its longest."""
    if isinstance(column, np.ndarray):
        return column
    if not len(column):
        *shape, kind = type_.split(" * ")
        return np.empty((0, *map(int, shape)), "U1" if kind == "string" else "S1")
    return np.asarray(ak.to_numpy(column))


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
    if offsets is not None and schema.kind in ("bytes", "ref", "arrow"):
        # What is kept whole as bytes is bytes in every entry.
        content = ak.contents.NumpyArray(layout.data, parameters={"__array__": "byte"})
        layout = ak.contents.ListOffsetArray(
            ak.index.Index64(offsets), content, parameters={"__array__": "bytestring"}
        )
    elif offsets is not None:
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


def encode(value: Any, schema: Schema) -> bytes:
    """Return a value's bytes, with a checksum."""
    _, columns = columns_of(value, schema)
    return pack_columns(columns, schema.names)


def decode(key: bytes, data: bytes, schema: Schema) -> Any:
    """Return the value that :func:`encode` packed."""
    _, columns = unpack_columns(unseal(key, data), schema.types, schema.names, schema.names)
    return value_of(schema, columns)


def pack_columns(columns: Mapping[str, Column], order: Sequence[str], *head: int) -> bytes:
    """Return the columns of one product as bytes with a checksum, behind some numbers."""
    packed = [pack(columns[name]) for name in order]
    sizes = [sum(len(part) for part in parts) for parts in packed]
    numbers = np.asarray([*head, *sizes], np.int64)
    return seal([numbers.data.cast("B"), *(part for parts in packed for part in parts)])


def unpack_columns(
    data: memoryview,
    types: Mapping[str, str],
    order: Sequence[str],
    names: Collection[str],
    head: int = 0,
) -> tuple[list[int], dict[str, Column]]:
    """Return the numbers and columns of :func:`pack_columns`; only some of the columns."""
    numbers = np.frombuffer(data, np.int64, head + len(order)).tolist()
    position = 8 * len(numbers)
    columns = {}
    for size, name in zip(numbers[head:], order, strict=True):
        if name in names:
            columns[name] = unpack(data[position : position + size], types[name])
        position += size
    return numbers[:head], columns


def seal(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return the parts joined, with their XXH3 checksum at the end."""
    digest = xxhash.xxh3_64()
    pieces = []
    for part in parts:
        digest.update(part)
        pieces.append(part)
    pieces.append(digest.digest())
    return b"".join(pieces)


def unseal(key: bytes, value: memoryview | bytes) -> memoryview:
    """Return the parts that :func:`seal` joined, as a view; a damaged value is a StoreError."""
    view = memoryview(value)
    payload = view[:-SEAL_BYTES]
    if xxhash.xxh3_64_digest(payload) != view[-SEAL_BYTES:]:
        raise StoreError(
            describe_key(key), "the value is damaged; restore it, or ingest its subrun anew"
        )
    return payload


def unseal_once(key: bytes, value: memoryview | bytes) -> memoryview:
    """Return as :func:`unseal` does, but look at a checksum once in this process."""
    seen = key + value[-SEAL_BYTES:]
    if seen in _verified:
        return memoryview(value)[:-SEAL_BYTES]
    data = unseal(key, value)
    if len(_verified) >= _MOST_VERIFIED:
        _verified.clear()
    _verified.add(seen)
    return data
