"""Fingerprints: hashes of all that decides what user code returns."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any

from hepcache.results.callables import CALLABLE_FAMILIES, CALLABLES
from hepcache.results.digests import Part, digest_of
from hepcache.results.installed import identity, installed, python_label
from hepcache.results.values import (
    VALUE_FAMILIES,
    VALUE_NAMES,
    VALUES,
    look_at_instance,
    look_at_state,
)
from hepcache.results.walk import SHORT, Walk, short

__all__ = ["INSTALLED", "digests_of_functions", "fingerprint", "registered_behaviors"]

INSTALLED = "installed packages"
"""What stands for their versions among the names of functions."""

_FORMAT = 1
# Events come and results go through these, whatever user code imports.
_ALWAYS = ("awkward", "boost-histogram", "coffea", "hist", "numpy", "uproot", "vector")
# Code that mentions one of these may look at annotations, or at docstrings.
_READS_ANNOTATIONS = frozenset(
    {"__annotations__", "get_annotations", "get_type_hints", "signature", "getfullargspec"}
)
_READS_DOCSTRINGS = frozenset({"__doc__", "getdoc"})
_KINDS = CALLABLES | VALUES
_FAMILIES = CALLABLE_FAMILIES | VALUE_FAMILIES
# Awkward finds behaviours in its own dictionary and in these packages' by the names of records,
# instead of by references.
_WITH_BEHAVIORS = ("coffea.nanoevents.methods.", "vector.backends.")
_Members = dict[str, list[tuple[Any, Any]]]
_known: dict[int, tuple[list[Any], list[Any], _Members]] = {}


def fingerprint(thing: Any) -> str:
    """Return a hash of everything that determines the results of a processor or function.

    It is equal across processes, hosts, hash seeds and repeated imports, and doesn't depend on
    the place of the code: a notebook, a module, a script, or a task that carries it.

    It covers the compiled code (not comments, layout, names of local variables or files) and
    all user code that it reaches: functions, base classes with all their attributes,
    decorators, closures, defaults and everything that is read by name, also in modules. It
    covers the present values of instances and modules, including those of NumPy, awkward, hist
    and correctionlib, and the pickled state of models. For installed packages it covers the
    versions of the distributions that are reached (Python's without its last number), always
    those of awkward, coffea, hist, boost-histogram, numpy, uproot and vector, and the files of
    packages that are installed from a directory or a repository.

    It covers more than necessary in these cases: a module of the user that is imported inside a
    function, or used other than by ``module.name``, counts as a whole, and so does a class;
    names of variables that inner functions share count; annotations count in dataclasses and
    of inner functions, elsewhere only if code mentions them. Docstrings count if code mentions
    ``__doc__``.

    It can't cover anything that is no function of code, values and events: the clock, random
    numbers without a seed, the network, files (see :func:`opened_files`), installed objects that
    were changed at run time, whether two attributes are one object or two equal ones, and the
    code's knowledge of its own place (``__file__``, ``__name__``, ``__module__``).

    Parameters
    ----------
    thing
        A processor, a function, a method, or any other object.

    Returns
    -------
    str
        32 hexadecimal digits.

    Raises
    ------
    FingerprintError
        An object that is reached can't be inspected; the message names it. If an object
        defines ``__hepcache_fingerprint__()``, its return value, such as a
        name and a version, replaces the object's attributes.

    Examples
    --------
    >>> from functools import lru_cache, partial
    >>> def hard(pt, cut):
    ...     return pt > cut
    >>> fingerprint(partial(hard, cut=30)) == fingerprint(partial(hard, cut=40))
    False
    """
    walk, parts = _walked(thing)
    return walk.digest(parts)


def digests_of_functions(thing: Any) -> dict[str, str]:
    """Return digests of the parts of a fingerprint, to tell which of them has changed.

    Parameters
    ----------
    thing
        What :func:`fingerprint` takes.

    Returns
    -------
    dict
        By the names of the functions and classes that are reached, digests of their own code
        and of the values that they read; and under :data:`INSTALLED` that of all versions of
        installed packages.

    Raises
    ------
    FingerprintError
        As :func:`fingerprint` does.
    """
    walk, _ = _walked(thing)
    versions = sorted({*walk.libraries(), *map(identity, _ALWAYS)})
    found = digest_of("\0".join(versions).encode()).hex()
    return {INSTALLED: found[:SHORT], **walk.digests_by_owner()}


def _walked(thing: Any) -> tuple[Walk, list[Part]]:
    """Return the walk over all that is reached, and what its beginning says."""
    docstrings = annotations = False
    while True:
        walk = Walk(_look, docstrings, annotations)
        versions = (python_label(), *map(identity, _ALWAYS))
        parts: list[Part] = [b"%d" % _FORMAT, *(version.encode() for version in versions)]
        parts.append(walk.child(thing, _name_of(thing)))
        walk.look()
        parts.append(_registered(walk))
        # Few programs read these, so they count only where one does.
        reads_docstrings = not walk.names.isdisjoint(_READS_DOCSTRINGS)
        reads_annotations = not walk.names.isdisjoint(_READS_ANNOTATIONS)
        if reads_docstrings <= docstrings and reads_annotations <= annotations:
            return walk, parts
        docstrings, annotations = reads_docstrings, reads_annotations


def _look(walk: Walk, value: Any) -> list[Part]:
    """Return what an object says."""
    stated = look_at_state(walk, value)
    if stated is not None:
        return stated
    look = _KINDS.get(type(value))
    if look is not None:
        return look(walk, value)
    for family, of_family in _FAMILIES.items():
        if isinstance(value, family):
            return of_family(walk, value)
    for base in type(value).__mro__:
        look = VALUE_NAMES.get(f"{base.__module__}.{base.__qualname__}")
        if look is not None:
            return look(walk, value)
    return look_at_instance(walk, value)


def registered_behaviors() -> list[tuple[str, Any]]:
    """Return all behaviours that the user's modules have registered, with their keys as text."""
    found = [
        (repr(key), value)
        for behavior in _behaviors()
        for module, members in _members(behavior).items()
        if installed(module) is None
        for key, value in members
    ]
    return sorted(found, key=lambda pair: pair[0])


def _module_of(value: Any) -> str:
    while isinstance(value, partial):
        value = value.func
    return str(getattr(value, "__module__", None) or "builtins")


def _registered(walk: Walk) -> Part:
    """Return the behaviours that modules of the user which are reached have registered."""
    members: dict[tuple[int, Any], bytes | int] = {}
    behaviors = [_members(behavior) for behavior in _behaviors()]
    while True:
        reached = [
            member
            for by_module in behaviors
            for module, known in by_module.items()
            if module in walk.modules
            for member in known
        ]
        for key, value in reached:
            if (id(value), key) not in members:
                step = f" -> behavior[{short(key)}]"
                members[id(value), key] = walk.child((key, value), step)
        if not walk.look():
            return frozenset(members.values())


def _members(behavior: dict[Any, Any]) -> _Members:
    """Return the members of a behaviour by module, found once while they are the same."""
    keys, values = list(behavior), list(behavior.values())
    known = _known.get(id(behavior))
    # The objects themselves: one that is equal may have other code.
    if known is None or known[0] != keys or not all(map(operator.is_, known[1], values)):
        members: _Members = {}
        for key, value in zip(keys, values, strict=True):
            members.setdefault(_module_of(value), []).append((key, value))
        known = _known[id(behavior)] = keys, values, members
    return known[2]


def _behaviors() -> Iterator[dict[Any, Any]]:
    for name in _with_behaviors(len(sys.modules)):
        behavior = getattr(sys.modules.get(name), "__dict__", {}).get("behavior")
        if isinstance(behavior, dict):
            yield behavior


@lru_cache(maxsize=1)
def _with_behaviors(_: int) -> list[str]:
    """Return the names of modules that may have behaviours, where so many are imported."""
    return ["awkward", *(name for name in list(sys.modules) if name.startswith(_WITH_BEHAVIORS))]


def _name_of(thing: Any) -> str:
    if isinstance(thing, FunctionType | type):
        return thing.__qualname__
    if isinstance(thing, MethodType):
        return f"{type(thing.__self__).__qualname__}.{thing.__name__}"
    return type(thing).__qualname__
