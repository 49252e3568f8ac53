"""The type of a product: how it is laid out in columns, and its identity."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from hepcache.errors import ConfigurationError

__all__ = ["Kind", "Layout", "Schema", "flat_dtype", "flat_type"]

Kind = Literal["bytes", "numpy", "awkward", "arrow", "ref"]
Layout = Literal["rows", "one"]
_FLAT = re.compile(r"^((?:\d+ \* )*)([a-z0-9]+(?:\[[a-z0-9]+\])?)$")


@dataclass(frozen=True)
class Schema:
    """The type of a product.

    Attributes
    ----------
    kind
        What is given back: ``bytes``, a NumPy array, an awkward array, Arrow, a ``Ref``.
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

        The order of columns, the compiler, the platform's byte order and the versions of
        the libraries don't enter.
        """
        text = json.dumps([self.kind, self.layout, sorted(self.columns), self.record])
        return hashlib.sha256(text.encode()).digest()[:16]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the order in which they were given."""
        return tuple(name for name, _ in self.columns)

    @cached_property
    def places(self) -> dict[str, int]:
        """Each column's place in the sorted order, counted from 1, as it stands in keys."""
        return {name: place for place, (name, _) in enumerate(sorted(self.columns), 1)}

    @cached_property
    def types(self) -> dict[str, str]:
        """Each column's type."""
        return dict(self.columns)

    @cached_property
    def is_record(self) -> bool:
        """Whether a row has named columns."""
        return self.names != ("",)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The structured dtype of records of plain columns."""
        plain = {name: flat_dtype(kind) for name, kind in self.columns}
        if None in plain.values():
            raise ConfigurationError("columns", "plain types", str(self))
        return np.dtype([(name, *found) for name, found in plain.items() if found])

    def check_columns(self, columns: Any) -> tuple[str, ...]:
        """Return the columns asked for, all of them for None.

        Raises
        ------
        ConfigurationError
            There is none of that name.
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
        return flat_type(given.dtype, given.shape[1:])
    if isinstance(given, str) and _FLAT.match(given):
        try:
            return flat_type(*flat_dtype(given) or (np.dtype(given), ()))
        except TypeError:
            return given
    if isinstance(given, str):
        return given
    if hasattr(given, "layout"):
        from hepcache.eventstore.typed import column_type

        return column_type(given)
    return flat_type(np.dtype(given))


def flat_type(dtype: np.dtype[Any], shape: tuple[int, ...] = ()) -> str:
    """Return the type string of a plain column.

    Raises
    ------
    ConfigurationError
        The dtype holds Python objects, text or records.
    """
    if dtype.kind not in "biufcMm" or dtype.itemsize > 16:
        raise ConfigurationError(
            "dtype", "booleans, integers, floats, complex numbers or times", str(dtype)
        )
    return "".join(f"{size} * " for size in shape) + dtype.newbyteorder("=").name


@lru_cache(1024)
def flat_dtype(type_: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and inner shape of a plain column; None if the type is no plain one.

    Examples
    --------
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
