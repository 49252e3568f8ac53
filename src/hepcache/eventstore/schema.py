"""The type of a product: its layout in columns, and its identity."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import awkward as ak
import numpy as np
from numpy.typing import NDArray

from hepcache.errors import ConfigurationError, ProductTypeError
from hepcache.eventstore.keys import Ref

Kind = Literal["bytes", "numpy", "awkward", "arrow", "ref"]
Layout = Literal["rows", "one"]
_FLAT = re.compile(r"^((?:\d+ \* )*)([a-z0-9]+(?:\[[a-z0-9]+\])?)$")


@dataclass(frozen=True)
class Schema:
    """The type of a product.

    Attributes
    ----------
    kind
        The kind of value: ``bytes``, a NumPy array, an awkward array, Arrow, a ``Ref``.
    layout
        ``rows``: a product is any number of rows; ``one``: exactly one.
    columns
        Name and type of each column of a row, the type in awkward's language
        (``"float32"``, ``"3 * int64"``, ``"var * ?float64"``, ``"string"``). A row that is
        no record has the one column ``""``.
    record
        The record's name (awkward behaviours), or Arrow's own description.

    Examples
    --------
    >>> Schema.table({"rec_energy": "float32", "slice": "int32"}).columns
    (('rec_energy', 'float32'), ('slice', 'int32'))
    """

    kind: Kind
    layout: Layout
    columns: tuple[tuple[str, str], ...]
    record: str | None = None

    @classmethod
    def table(
        cls,
        columns: Mapping[str, Any],
        *,
        kind: Kind = "awkward",
        layout: Layout = "rows",
        record: str | None = None,
    ) -> Schema:
        """Return the schema of records with these columns.

        Parameters
        ----------
        columns
            Name to dtype, awkward type string, or an example array of rows.
        """
        return cls(
            kind,
            layout,
            tuple((str(name), _type_string(given)) for name, given in columns.items()),
            record,
        )

    @cached_property
    def identity(self) -> bytes:
        """16 bytes that two schemas share only if they are the same type.

        It doesn't depend on the order of columns, the compiler, the platform's byte order or
        the versions of the libraries.
        """
        text = json.dumps([self.kind, self.layout, sorted(self.columns), self.record])
        return hashlib.sha256(text.encode()).digest()[:16]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order of the call."""
        return tuple(name for name, _ in self.columns)

    @cached_property
    def column_numbers(self) -> dict[str, int]:
        """Each column's number in the sorted order, from 1, as used in keys."""
        return {name: number for number, (name, _) in enumerate(sorted(self.columns), 1)}

    @cached_property
    def types(self) -> dict[str, str]:
        """Each column's type."""
        return dict(self.columns)

    @cached_property
    def is_record(self) -> bool:
        """Whether a row has named columns."""
        return self.names != ("",)

    def check_columns(self, columns: Any) -> tuple[str, ...]:
        """Return the requested columns; None means all.

        Raises
        ------
        ConfigurationError
            There is no column of that name.
        """
        if columns is None:
            return self.names
        wanted = (columns,) if isinstance(columns, str) else tuple(columns)
        for name in wanted:
            if name not in self.types:
                raise ConfigurationError("column", f"one of {', '.join(self.names)}", name)
        return wanted

    def to_bytes(self) -> bytes:
        """Return the schema as JSON."""
        return json.dumps([self.kind, self.layout, self.columns, self.record]).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Schema:
        """Return the schema that :meth:`to_bytes` wrote."""
        return _parsed(bytes(data))

    def __str__(self) -> str:
        rows = ", ".join(f"{name}: {kind}" if name else kind for name, kind in self.columns)
        row = f"{{{rows}}}" if self.is_record else rows
        return f"{self.kind} {'var * ' if self.layout == 'rows' else ''}{row}"

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.identity == other.identity


@lru_cache(4096)
def _parsed(data: bytes) -> Schema:
    kind, layout, columns, record = json.loads(data)
    return Schema(kind, layout, tuple((name, type_) for name, type_ in columns), record)


def _type_string(given: Any) -> str:
    if isinstance(given, np.ndarray):
        return array_type(given.dtype, given.shape[1:])
    if isinstance(given, str) and _FLAT.match(given):
        try:
            return flat_type(*flat_dtype(given) or (np.dtype(given), ()))
        except TypeError:
            return given
    if isinstance(given, str):
        return given
    if hasattr(given, "layout"):
        return column_type(given)
    return array_type(np.dtype(given))


_TEXT = {"U": "string", "S": "bytes"}


def array_type(dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> str:
    """Return the type string of a column of a NumPy array, of text too.

    The width of text is not part of its type: it would differ from product to product.
    """
    if dtype.kind in _TEXT:
        return "".join(f"{size} * " for size in shape) + _TEXT[dtype.kind]
    return flat_type(dtype, shape)


def flat_type(dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> str:
    """Return the type string of a plain column; not of Python objects, text or records."""
    if dtype.kind not in "biufcMm" or dtype.itemsize > 16:
        raise ConfigurationError(
            "dtype", "booleans, integers, floats, complex numbers or times", str(dtype)
        )
    return "".join(f"{size} * " for size in shape) + dtype.newbyteorder("=").name


@lru_cache(1024)
def flat_dtype(type_: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and inner shape of a plain column; None if the type is no plain one.

    >>> flat_dtype("3 * float32")
    (dtype('float32'), (3,))
    """
    found = _FLAT.match(type_)
    if not found:
        return None
    try:
        dtype = np.dtype(found[2])
    except TypeError:
        return None
    if dtype.kind not in "biufcMm":
        return None
    return dtype, tuple(int(size) for size in found[1].split(" * ")[:-1])


_BYTES = (("", "uint8"),)


def schema_of(value: Any) -> Schema:
    """Return the schema under which a value would be stored."""
    if isinstance(value, bytes | bytearray | memoryview):
        return Schema("bytes", "rows", _BYTES)
    if isinstance(value, np.ndarray | np.generic):
        return _numpy_schema(np.asarray(value))
    if isinstance(value, str | bool | int | float | complex | list | tuple):
        return _numpy_schema(python_array(value))
    if isinstance(value, Ref):
        return Schema("ref", "rows", _BYTES)
    if isinstance(value, ak.Array):
        return _awkward_schema(value, "rows")
    if isinstance(value, ak.Record):
        return _awkward_schema(ak.Array(value.layout.array), "one")
    if type(value).__module__.partition(".")[0] == "pyarrow":
        return Schema("arrow", "rows", _BYTES, _arrow_type(value))
    raise ProductTypeError(
        f"{_PYTHON}, a NumPy array, an awkward array or record, an Arrow table, batch or array, "
        "or a Ref",
        type(value).__name__,
    )


_PYTHON = "bytes, text, a number, a list of texts or numbers"


def python_array(value: Any) -> NDArray[Any]:
    """Return the array of a text, a number, or a list of them.

    Raises ``ProductTypeError``: the list is empty, nested or mixed, a number has no type of
    NumPy's, or a text in a list ends in NUL, which arrays don't keep.
    """
    items = value if isinstance(value, list | tuple) else [value]
    kinds = {_kind(item) for item in items}
    if kinds in ({int, float}, {int, complex}, {float, complex}, {int, float, complex}):
        kinds = {complex} if complex in kinds else {float}
    if len(kinds) != 1 or None in kinds:
        found = f"{type(value).__name__} of {', '.join(sorted({type(i).__name__ for i in items}))}"
        if not items:
            found = f"an empty {type(value).__name__}; numpy.array([], dtype) has a type"
        raise ProductTypeError(f"{_PYTHON}, all of one type, not nested", found)
    if items is value and any(
        isinstance(item, str | bytes) and item[-1:] in ("\0", b"\0") for item in items
    ):
        raise ProductTypeError(
            "texts that don't end in NUL", "one that does; awkward.Array(texts) keeps it"
        )
    array = np.asarray(value)
    if array.dtype.kind == "O" or (kinds == {int} and array.dtype.kind not in "iu"):
        raise ProductTypeError("numbers of 64 bits", str(value)[:50])
    return array


def _kind(value: Any) -> type | None:
    """Return which of Python's plain types a value or NumPy scalar has."""
    value = value.item() if isinstance(value, np.generic) else value
    for kind in (bool, int, float, complex, str, bytes):
        if isinstance(value, kind):
            return kind
    return None


def _numpy_schema(value: NDArray[Any]) -> Schema:
    layout: Any = "one" if value.ndim == 0 else "rows"
    if value.dtype.names is None:
        return Schema("numpy", layout, (("", array_type(value.dtype, value.shape[1:])),))
    if value.ndim > 1:
        raise ProductTypeError("a structured array of one dimension", f"{value.ndim} dimensions")
    columns = tuple(
        (name, array_type(value.dtype[name].base, value.dtype[name].shape))
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
        return array_type(column.dtype, column.shape[1:])
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
    return [_undocumented(part) for part in form] if isinstance(form, list) else form


def _arrow_type(value: Any) -> str:
    import pyarrow as pa

    if isinstance(value, pa.Table | pa.RecordBatch):
        kind = "table" if isinstance(value, pa.Table) else "batch"
        fields = ", ".join(f"{field.name}: {field.type}" for field in value.schema)
        return f"{kind} {fields}"
    if isinstance(value, pa.Array):
        return f"array {value.type}"
    raise ProductTypeError("an Arrow table, record batch or array", type(value).__name__)
