"""Values that code and instances hold: plain ones, arrays, histograms, models, the user's own."""

from __future__ import annotations

import copyreg
import enum
import io
import logging
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, MemberDescriptorType
from typing import Any, NoReturn

import awkward as ak
import numpy as np

from hepcache.results.digests import Part, literal
from hepcache.results.walk import HOOK, REFUSED, Look, Walk, short
from hepcache.upstream.numba import compiles_more, dispatcher_of

__all__ = ["VALUES", "VALUE_FAMILIES", "VALUE_NAMES", "look_at_instance", "look_at_state"]

_ADVICE = f"keep what it is made of instead, or let its class define {HOOK}()"
_OPEN_FILE = "an open file can't be seen into; keep its path, and open it where the events are"
_OF_ENUM_MEMBER = frozenset({"_name_", "_value_", "_sort_order_", "__objclass__"})


def look_at_state(walk: Walk, value: Any) -> list[Part] | None:
    """Return what an object says itself that stands for it, if it does."""
    kind = type(value)
    hook = None if isinstance(value, type) else getattr(kind, HOOK, None)
    if hook is None:
        return None
    try:
        state = hook(value)
    except Exception as error:
        walk.refuse(f"{HOOK}() failed: {type(error).__name__}: {error}")
    return [b"stated", walk.child(kind), walk.child(state, f".{HOOK}()")]


def look_at_instance(walk: Walk, value: Any) -> list[Part]:
    """Return what an instance of any other class says: its attributes, or what it pickles."""
    kind = type(value)
    label = walk.label(value)
    if label is not None:
        return [f"object {label}".encode()]
    if walk.label(kind) is not None:
        return _reduced(walk, value)
    parts: list[Part] = [b"instance", walk.child(kind)]
    # What the user's own __getstate__ leaves out decides, too: all attributes count.
    attributes = dict(getattr(value, "__dict__", {}))
    for name, slot in _slots(kind).items():
        with suppress(AttributeError):  # nothing is in it yet
            attributes[name] = slot.__get__(value)
    if any("__slots__" in vars(base) for base in kind.__mro__):
        # A class that was sent along with a task has attributes instead, in any order.
        attributes = dict(sorted(attributes.items()))
    parts += walk.attributes(attributes)
    for base, content in _CONTENT.items():
        if isinstance(value, base):
            return [*parts, walk.child(content(value))]
    # State that Python code has not, such as that of a base class in C++.
    return parts + _reduced(walk, value) if _has_state(kind) else parts


def _slots(kind: type) -> dict[str, MemberDescriptorType]:
    return {
        name: slot
        for base in kind.__mro__
        if "__slots__" in vars(base)  # compiled classes have others, such as addresses
        for name, slot in vars(base).items()
        if isinstance(slot, MemberDescriptorType)
    }


def _has_state(kind: type) -> bool:
    """Return whether instances hold more than attributes and slots."""
    pointers = len(_slots(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    size = object.__basicsize__ + pointers * struct.calcsize("P")
    return kind.__basicsize__ > size or kind.__itemsize__ > 0


def _reduced(walk: Walk, value: Any) -> list[Part]:
    """Return what an object would pickle, as objects instead of bytes."""
    kind = type(value)
    reducer = copyreg.dispatch_table.get(kind)
    try:
        found = reducer(value) if reducer else value.__reduce_ex__(4)
    except Exception as error:
        name = f"{kind.__module__}.{kind.__qualname__}"
        walk.refuse(f"an object of {name} can't be seen into ({error}); {_ADVICE}")
    if isinstance(found, str):
        return _by_name(walk, value, found)
    made, arguments, *rest = found
    state, items, pairs, setter = (*rest, None, None, None, None)[:4]
    parts: list[Part] = [b"reduced", walk.child(kind), walk.child(made)]
    parts.append(b"%d arguments" % len(arguments))
    parts += [walk.child(argument) for argument in arguments]
    if isinstance(state, dict) and not state:
        state = None  # some have attributes only once somebody has asked for them
    if isinstance(state, dict) and all(isinstance(name, str) for name in state):
        parts += walk.attributes(state)
    elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        parts += [b"slots", *walk.attributes(state[0] or {}), *walk.attributes(state[1])]
    else:
        parts += [b"state", walk.child(state)]
    parts += [walk.child(member, f"[{at}]") for at, member in enumerate(items or ())]
    parts.append(b"pairs")
    for key, member in pairs or ():
        step = f"[{short(key)}]"
        parts += walk.child(key, step), walk.child(member, step)
    return parts if setter is None else [*parts, walk.child(setter)]


def _by_name(walk: Walk, value: Any, name: str) -> list[Part]:
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or not walk.stands(value, module, name):
        # Without asking modules that make names when they are asked for them.
        module = next(
            (
                where
                for where, found in list(sys.modules.items())
                if getattr(found, "__dict__", {}).get(name) is value
            ),
            "",
        )
    library = walk.library(module)
    if library is None or not walk.stands(value, module, name):
        walk.refuse(f"{name} is nowhere by its name, so it can't be seen into; {_ADVICE}")
    walk.allow(f"{module}.{name}")
    return [f"object {library} {module}.{name}".encode()]


def _ordered(walk: Walk, value: Iterable[Any]) -> list[Part]:
    members = [walk.child(member, f"[{at}]") for at, member in enumerate(value)]
    return [type(value).__name__.encode(), *members]


def _set(walk: Walk, value: Iterable[Any]) -> list[Part]:
    members = frozenset(walk.child(member, f"[{short(member)}]") for member in value)
    return [type(value).__name__.encode(), members]


def _mapping(walk: Walk, value: Mapping[Any, Any]) -> list[Part]:
    # The order counts: loops over it, and what they add up, have it.
    parts: list[Part] = [b"dict"]
    for key, member in value.items():
        step = f"[{short(key)}]"
        parts += walk.child(key, step), walk.child(member, step)
    return parts


def _view(walk: Walk, value: Iterable[Any]) -> list[Part]:
    return [type(value).__name__.encode(), walk.child(list(value))]


def _bytes(walk: Walk, value: bytearray) -> list[Part]:
    del walk
    return [literal("bytearray", bytes(value))]


def _member(walk: Walk, value: enum.Enum) -> list[Part]:
    parts: list[Part] = [b"member", walk.child(type(value)), str(value._name_).encode()]
    parts.append(walk.child(value._value_, f".{value._name_}"))
    own = {name: kept for name, kept in vars(value).items() if name not in _OF_ENUM_MEMBER}
    return parts + walk.attributes(dict(sorted(own.items())))


def _array(walk: Walk, value: np.ndarray) -> list[Part]:
    parts: list[Part] = [b"array", walk.child(value.dtype), repr(value.shape).encode()]
    if value.dtype.hasobject or value.dtype.kind == "T":
        members = value.ravel().tolist()
        return [*parts, *(walk.child(member, f"[{at}]") for at, member in enumerate(members))]
    # Sums over rows and over columns are rounded differently.
    by_column = value.flags.f_contiguous and not value.flags.c_contiguous
    parts.append(b"F" if by_column else b"C")
    if not value.nbytes:
        return parts
    content = np.ascontiguousarray(value.T if by_column else value).reshape(-1).view(np.uint8)
    return [*parts, literal("data", content.data)]


def _masked(walk: Walk, value: np.ma.MaskedArray) -> list[Part]:
    # It makes its fill value when that is first asked for.
    facts = {"data": value.data, "mask": np.ma.getmaskarray(value), "fill": value.fill_value}
    return [b"masked", *walk.attributes(facts)]


def _scalar(walk: Walk, value: np.generic) -> list[Part]:
    return [b"scalar", walk.child(np.asarray(value))]


def _vectorized(walk: Walk, value: np.vectorize) -> list[Part]:
    # The rest is what NumPy remembers of calls.
    names = ("pyfunc", "otypes", "excluded", "signature", "cache")
    return [b"vectorize", *walk.attributes({name: getattr(value, name) for name in names})]


def _awkward(walk: Walk, value: Any) -> list[Part]:
    form, length, buffers = ak.to_buffers(ak.to_packed(value))
    parts: list[Part] = [b"awkward", walk.child(type(value)), form.to_json().encode()]
    parts.append(b"%d" % length)
    parts += walk.attributes({name: np.asarray(buffers[name]) for name in sorted(buffers)})
    # Those of the session begin with @.
    attrs = {name: kept for name, kept in value.attrs.items() if not name.startswith("@")}
    return [*parts, walk.child(value.behavior, ".behavior"), walk.child(attrs, ".attrs")]


def _record(walk: Walk, value: Any) -> list[Part]:
    rows, at = value.layout.array, value.layout.at
    row = ak.Array(rows[at : at + 1], behavior=value.behavior, attrs=value.attrs)
    return [b"record", walk.child(row)]


def _compiled(walk: Walk, value: Any) -> list[Part]:
    """Return the function that numba compiles, and how; the rest depends on its calls."""
    given = [] if compiles_more(value) else sorted(map(str, value.signatures))
    parts: list[Part] = [b"compiled", walk.child(type(value)), walk.child(value.py_func)]
    return [*parts, walk.child(value.targetoptions, ".targetoptions"), walk.child(given)]


def _compiled_ufunc(walk: Walk, value: Any) -> list[Part]:
    made_by = dispatcher_of(value)
    facts = {name: getattr(value, name) for name in ("identity", "signature", "types")}
    facts |= {"function": made_by.py_func, "targetoptions": made_by.targetoptions}
    return [b"ufunc", walk.child(type(value)), *walk.attributes(facts)]


def _session(walk: Walk, value: Any) -> list[Part]:
    """Return the model of a session of onnxruntime, from its bytes or its file."""
    model, path = getattr(value, "_model_bytes", None), getattr(value, "_model_path", None)
    if not model and path:
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            walk.refuse(f"the model's file can't be read any more ({error})")
    if not model:
        walk.refuse(f"a session of onnxruntime, made of neither bytes nor a file; {_ADVICE}")
    level = str(value.get_session_options().graph_optimization_level).encode()
    parts: list[Part] = [b"session", walk.child(type(value)), literal("model", bytes(model))]
    return [*parts, level, walk.child(value.get_providers())]


def _tensor(walk: Walk, value: Any) -> list[Part]:
    torch = sys.modules["torch"]
    rows = value.detach().cpu().contiguous().reshape(-1)
    content = rows.view(torch.uint8).numpy() if rows.numel() else np.empty(0, np.uint8)
    facts = str(value.dtype), tuple(value.shape), bool(value.requires_grad)
    return [b"tensor", walk.child(type(value)), repr(facts).encode(), walk.child(content)]


def _environment(walk: Walk, value: Any) -> NoReturn:
    del value
    walk.refuse(REFUSED["os.environ"])


def _open_file(walk: Walk, value: Any) -> NoReturn:
    del value
    walk.refuse(_OPEN_FILE)


def _file(walk: Walk, value: io.IOBase) -> list[Part]:
    if isinstance(value, io.BytesIO | io.StringIO):
        return _reduced(walk, value)
    for name in ("stdin", "stdout", "stderr"):
        if value is getattr(sys, name) or value is getattr(sys, f"__{name}__"):
            return [name.encode()]
    _open_file(walk, value)


def _logger(walk: Walk, value: logging.Logger) -> list[Part]:
    del walk, value
    return [b"logger"]  # what it writes is no result


# The builtin part of an instance of a user's class, past methods that it overrides.
_CONTENT: dict[type, Callable[[Any], Any]] = {
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: str.__str__,
    bytes: bytes,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytearray: bytearray,
}

VALUES: dict[type, Look] = {
    MappingProxyType: _mapping,
    bytearray: _bytes,
    dict: _mapping,
    frozenset: _set,
    list: _ordered,
    np.ma.MaskedArray: _masked,
    np.memmap: _array,
    np.ndarray: _array,
    np.vectorize: _vectorized,
    set: _set,
    tuple: _ordered,
    type(os.environ): _environment,
    type({}.items()): _view,
    type({}.keys()): _view,
    type({}.values()): _view,
}
"""What values say, by their class."""

VALUE_FAMILIES: dict[type, Look] = {
    ak.Array: _awkward,
    ak.Record: _record,
    enum.Enum: _member,
    io.IOBase: _file,
    logging.Logger: _logger,
    np.generic: _scalar,
}
"""The same, by a base class."""

VALUE_NAMES: dict[str, Look] = {
    "numba.core.dispatcher.Dispatcher": _compiled,
    "numba.np.ufunc.ufunc_base.UfuncBase": _compiled_ufunc,
    "onnxruntime.capi.onnxruntime_inference_collection.InferenceSession": _session,
    "torch.Tensor": _tensor,
    # These pickle the name of a file.
    "uproot.reading.ReadOnlyDirectory": _open_file,
    "uproot.reading.ReadOnlyFile": _open_file,
    "uproot.source.chunk.Source": _open_file,
}
"""The same, by the name of a base class that need not be imported."""
