"""Functions, classes and modules: their code, and all that it reaches by name."""

from __future__ import annotations

import builtins
import enum
import functools
import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from hepcache.results.bytecode import Code, Import, Read, code_of
from hepcache.results.digests import Part
from hepcache.results.walk import Look, Walk, short

__all__ = ["CALLABLES", "CALLABLE_FAMILIES"]

_UNDEFINED = "no such name is defined; the code would fail there"
# Where user code stands decides nothing that should count.
_OWN_PLACE = frozenset(
    {"__cached__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"}
)
# What Python and its libraries note in a class.
_NOT_OF_CLASS = frozenset(
    {
        "__abstractmethods__",
        "__dict__",
        "__firstlineno__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__qualname__",
        "__slotnames__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
_LEADS_ANYWHERE = frozenset(
    {"__builtins__", "__globals__", "__subclasses__", "f_builtins", "f_globals", "f_locals"}
)
_ANNOTATIONS = frozenset(
    {"__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__"}
)


def _function(walk: Walk, value: FunctionType) -> list[Part]:
    registry = getattr(value, "registry", None)
    if isinstance(registry, MappingProxyType) and hasattr(value, "dispatch"):
        return _single_dispatch(walk, registry)
    module = value.__globals__.get("__name__", "")
    library = walk.library(module)
    if library is not None and walk.stands(value, module, value.__qualname__):
        walk.allow(f"{module}.{value.__qualname__}")
        return [f"function {library} {module}.{value.__qualname__}".encode()]
    code = code_of(value.__code__, walk.docstrings)
    parts: list[Part] = [b"function", value.__qualname__.encode(), code.digest]
    defaults = value.__defaults__ or ()
    parts.append(b"%d defaults" % len(defaults))
    parts += [walk.child(default, f"(default {at})") for at, default in enumerate(defaults)]
    keywords = value.__kwdefaults__ or {}
    parts.append(b"%d keywords" % len(keywords))
    for name, default in sorted(keywords.items()):
        parts += name.encode(), walk.child(default, f"({name}=)")
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        # A method that calls super() holds its class so.
        parts += name.encode(), walk.child(cell, "" if name == "__class__" else f" -> {name}")
    parts += walk.attributes(dict(sorted(vars(value).items())))
    if walk.docstrings:
        parts.append(walk.child(value.__doc__))
    if walk.annotations:
        parts.append(walk.child(value.__annotations__, " annotations"))
    if library is not None:
        # Made anew by installed code, such as a decorator: what it holds is the user's.
        return [library.encode(), *parts]
    walk.names |= code.names | code.strings
    walk.reach(value.__globals__)
    for name in sorted(code.names & _LEADS_ANYWHERE):
        walk.refuse("what it leads to can't be seen; name what is meant", f" -> {name}")
    for read in code.reads:
        parts += ".".join(read.chain).encode(), _read(walk, value.__globals__, read, code)
    for found in code.imports:
        parts.append(repr(found).encode())
        parts += _import(walk, value.__globals__, found, code)
    return parts


def _single_dispatch(walk: Walk, registry: Mapping[Any, Any]) -> list[Part]:
    # Its cache depends on what it was called with.
    pairs = frozenset(
        walk.child((kind, chosen), f"({short(kind)})") for kind, chosen in registry.items()
    )
    return [b"singledispatch", pairs]


def _builtin(walk: Walk, value: BuiltinFunctionType) -> list[Part]:
    owner = value.__self__
    if owner is not None and not isinstance(owner, ModuleType):
        return [b"method", value.__name__.encode(), walk.child(owner)]
    module = value.__module__ or getattr(owner, "__name__", "")
    name = f"{module}.{value.__qualname__}"
    library = walk.library(module)
    if library is None:
        walk.refuse(f"{name} is compiled code outside of all installed distributions")
    walk.allow(name)
    return [f"function {library} {name}".encode()]


def _method(walk: Walk, value: MethodType) -> list[Part]:
    return [b"method", walk.child(value.__func__), walk.child(value.__self__)]


def _partial(walk: Walk, value: functools.partial[Any]) -> list[Part]:
    parts: list[Part] = [b"partial", walk.child(value.func, ".func")]
    parts += [walk.child(value.args, ".args"), walk.child(value.keywords, ".keywords")]
    return [*parts, *walk.attributes(vars(value))]


def _cached(walk: Walk, value: Any) -> list[Part]:
    # What it remembers follows from what it wraps.
    typed = repr(value.cache_parameters()["typed"]).encode()
    return [b"cached", typed, walk.child(value.__wrapped__)]


def _property(walk: Walk, value: property) -> list[Part]:
    parts: list[Part] = [b"property", walk.child(type(value))]
    parts += [walk.child(made) for made in (value.fget, value.fset, value.fdel)]
    return [*parts, *walk.attributes(getattr(value, "__dict__", {}))]


def _cached_property(walk: Walk, value: functools.cached_property[Any]) -> list[Part]:
    return [b"cached_property", str(value.attrname).encode(), walk.child(value.func)]


def _wrapped(walk: Walk, value: staticmethod[Any, Any] | classmethod[Any, Any, Any]) -> list[Part]:
    return [type(value).__name__.encode(), walk.child(value.__func__)]


def _slot(walk: Walk, value: Any) -> list[Part]:
    del walk  # what is in it, instances say
    return [type(value).__name__.encode(), value.__name__.encode()]


def _of_python(walk: Walk, value: Any) -> list[Part]:
    owner = value.__self__ if isinstance(value, MethodWrapperType) else value.__objclass__
    return [b"descriptor", value.__name__.encode(), walk.child(owner)]


def _cell(walk: Walk, value: CellType) -> list[Part]:
    try:
        return [b"cell", walk.child(value.cell_contents)]
    except ValueError:
        return [b"empty cell"]


def _code(walk: Walk, value: CodeType) -> list[Part]:
    return [b"code", code_of(value, walk.docstrings).digest]


def _read(walk: Walk, names: dict[str, Any], read: Read, code: Code) -> Part:
    """Return what stands for a global name that code reads."""
    name, *attributes = read.chain
    step = f" -> {name}"
    if name in _OWN_PLACE:
        return b"own place"
    if name in names:
        value = names[name]
    else:
        found = names.get("__builtins__", builtins)
        of_python = found if isinstance(found, dict) else vars(found)
        if name not in of_python:
            if read.optional:
                return b"own name"
            walk.refuse(_UNDEFINED, step)
        value = of_python[name]
        if value is globals:
            return walk.child(_globals(names), step)
        if value is builtins.__import__ and read.argument:
            return walk.child(_imported(walk, read.argument, names, 0), step)
    if isinstance(value, ModuleType) and not attributes:
        # Attributes may be taken of it by their names.
        for attribute in sorted(code.strings):
            walk.allow(f"{value.__name__}.{attribute}", step)
    return _taken(walk, value, attributes, step, names, read.argument)


def _taken(
    walk: Walk,
    value: Any,
    attributes: list[str],
    step: str,
    names: dict[str, Any],
    argument: str = "",
) -> Part:
    """Return what stands for attributes of modules; others are part of what has them."""
    while isinstance(value, ModuleType) and attributes:
        module = value.__name__
        name, *attributes = attributes
        step = f"{step}.{name}"
        library = walk.library(module)
        if library is None:
            walk.reach(vars(value))
            if name in _OWN_PLACE:
                return b"own place"
        try:
            value = getattr(value, name)
        except AttributeError:
            if library is None:
                walk.refuse(_UNDEFINED, step)
            # Somebody else's import may add it, such as a package's module: it has this name.
            return f"{library} {'.'.join((module, name, *attributes))}".encode()
        if library is None or isinstance(value, ModuleType) or value is importlib.import_module:
            continue
        walk.allow(f"{module}.{name}", step)
        if not _is_users(walk, value):
            walk.label(value)  # it may be known by another name not to be seen into
            return f"{library} {module}.{name}".encode()
    if value is importlib.import_module and argument:
        return walk.child(_imported(walk, argument, names, 0), step)
    return walk.child(value, step)


def _is_users(walk: Walk, value: Any) -> bool:
    """Return whether installed code was given an object of the user to hold."""
    if isinstance(value, FunctionType):
        return walk.library(value.__globals__.get("__name__", "")) is None
    return isinstance(value, type) and walk.library(value.__module__) is None


def _globals(names: dict[str, Any]) -> Any:
    """Return what ``globals()`` gives code to look into."""
    module = sys.modules.get(names.get("__name__", ""))
    if module is not None and vars(module) is names:
        return module
    whole = ModuleType("")
    vars(whole).update(names)
    return whole


def _import(walk: Walk, names: dict[str, Any], wanted: Import, code: Code) -> list[Part]:
    """Return what an import statement inside a function brings."""
    level, module, taken = wanted
    step = f" -> import {module}"
    library = None if level else walk.library(module)
    if library is not None:
        walk.allow(module, step)
        # The names that are used there may be its.
        for name in sorted({*taken, *code.names, *code.strings}):
            walk.allow(f"{module}.{name}", step)
        return [f"import {library} {module}".encode()]
    found = _imported(walk, module, names, level)
    if not isinstance(found, ModuleType) or not taken:
        return [walk.child(found, step)]
    parts: list[Part] = []
    for name in taken:
        if not hasattr(found, name):
            # Python tries the same for a name that a package does not have.
            with suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{name}")
        parts.append(_taken(walk, found, [name], step, names))
    return parts


def _imported(walk: Walk, module: str, names: dict[str, Any], level: int) -> ModuleType | str:
    """Return a module, or the name of one that is not there, which the code finds out, too."""
    own = str(names.get("__name__", ""))
    package = names.get("__package__")
    if package is None:
        package = own if "__path__" in names else own.rpartition(".")[0]
    try:
        return importlib.import_module("." * level + module, package)
    except ImportError:
        return f"absent {module}"
    except Exception as error:
        problem = f"the import failed: {type(error).__name__}: {error}"
        walk.refuse(problem, f" -> import {module}")


def _module(walk: Walk, value: ModuleType) -> list[Part]:
    library = walk.library(value.__name__) if value.__name__ else None
    if library is not None:
        walk.allow(value.__name__)
        return [f"module {library} {value.__name__}".encode()]
    names = vars(value)
    walk.reach(names)
    parts: list[Part] = [b"module"]
    for name in sorted(names):
        if not (name.startswith("__") and name.endswith("__")):
            parts += name.encode(), walk.child(names[name], f" -> {name}")
    return parts


def _class(walk: Walk, value: type) -> list[Part]:
    label = walk.label(value)
    if label is not None:
        return [f"class {label}".encode()]
    walk.modules.add(value.__module__)
    parts: list[Part] = [b"class", value.__qualname__.encode(), walk.child(type(value))]
    parts.append(b"%d bases" % len(value.__bases__))
    parts += [walk.child(base, f" -> {base.__name__}") for base in value.__bases__]
    dropped = _NOT_OF_CLASS
    if not walk.annotations:
        dropped |= _ANNOTATIONS
    if not walk.docstrings:
        dropped |= {"__doc__"}
    content = _content_of_enum(value) if isinstance(value, enum.EnumMeta) else vars(value)
    # A class that was sent along with a task has lost its slots; __slots__ names them.
    names = [
        name
        for name, made in content.items()
        if name not in dropped and not isinstance(made, MemberDescriptorType)
    ]
    if not isinstance(value, enum.EnumMeta):
        names.sort()
    return parts + walk.attributes({name: content[name] for name in names})


def _content_of_enum(value: enum.EnumMeta) -> dict[str, Any]:
    """Return members in their order, then what else the user wrote, without what enum notes."""
    members: dict[str, Any] = dict(value.__members__)
    for name, made in sorted(vars(value).items()):
        noted = name.startswith("_") and name.endswith("_") and name[1] != "_"
        inherited = any(getattr(base, name, None) is made for base in value.__mro__[1:])
        if name not in members and not (noted and name != "_missing_") and not inherited:
            members[name] = made
    for name in ("__new__", "__reduce_ex__"):
        members.pop(name, None)
    return members


CALLABLES: dict[type, Look] = {
    BuiltinFunctionType: _builtin,
    CellType: _cell,
    ClassMethodDescriptorType: _of_python,
    CodeType: _code,
    FunctionType: _function,
    GetSetDescriptorType: _slot,
    MemberDescriptorType: _slot,
    MethodDescriptorType: _of_python,
    MethodType: _method,
    MethodWrapperType: _of_python,
    WrapperDescriptorType: _of_python,
    classmethod: _wrapped,
    functools.cached_property: _cached_property,
    functools.partial: _partial,
    staticmethod: _wrapped,
    type(functools.cache(len)): _cached,
}
"""What callables say, and what holds them, by their class."""

CALLABLE_FAMILIES: dict[type, Look] = {type: _class, ModuleType: _module, property: _property}
"""The same, by a base class."""
