"""The walk over all objects that are reached from one, each of which is looked into once."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from hepcache.errors import FingerprintError
from hepcache.results.bytecode import plain
from hepcache.results.digests import Graph, Part, digest_of
from hepcache.results.installed import installed

__all__ = ["HOOK", "REFUSED", "SHORT", "Look", "Walk", "short"]

HOOK = "__hepcache_fingerprint__"
"""The method with which an object says what stands for its state."""

SHORT = 16
"""Digits of a digest that only tells what has changed."""

_TEXT = "code made of text while it runs can't be seen into; write it as a function"
_MODULE = "a module that is named while the code runs can't be seen into; import it by a statement"
_ENVIRONMENT = "the environment is another on every host; give the value to the processor"
_PROGRAM = "another program can't be seen into"
_PICKLE = (
    "what a pickle holds can't be seen into; load it beforehand and let the processor hold it"
)
_PLACE = "results that depend on the text or the lines of code can't be kept"
_COMPILED = "compiled code outside of all installed distributions can't be seen into"

REFUSED: Mapping[str, str] = {
    "builtins.__import__": _MODULE,
    "builtins.compile": _TEXT,
    "builtins.eval": _TEXT,
    "builtins.exec": _TEXT,
    "_pickle.Unpickler": _PICKLE,
    "_pickle.load": _PICKLE,
    "_pickle.loads": _PICKLE,
    "cffi": _COMPILED,
    "cloudpickle.load": _PICKLE,
    "cloudpickle.loads": _PICKLE,
    "ctypes": _COMPILED,
    "_ctypes": _COMPILED,
    "dill._dill.load": _PICKLE,
    "dill._dill.loads": _PICKLE,
    "importlib.__import__": _MODULE,
    "importlib.import_module": _MODULE,
    "importlib.reload": _MODULE,
    "inspect.currentframe": _PLACE,
    "inspect.getsource": _PLACE,
    "inspect.getsourcelines": _PLACE,
    "inspect.stack": _PLACE,
    "joblib.load": _PICKLE,
    "joblib.numpy_pickle.load": _PICKLE,
    "os.environ": _ENVIRONMENT,
    "os.environb": _ENVIRONMENT,
    "os.getenv": _ENVIRONMENT,
    "os.getenvb": _ENVIRONMENT,
    "os.popen": _PROGRAM,
    "os.system": _PROGRAM,
    "pickle.Unpickler": _PICKLE,
    "pickle.load": _PICKLE,
    "pickle.loads": _PICKLE,
    "runpy.run_module": _MODULE,
    "runpy.run_path": _MODULE,
    "subprocess": _PROGRAM,
    "sys._getframe": _PLACE,
    "sys.argv": _ENVIRONMENT,
    "sys.modules": _MODULE,
}
"""What is known by name to lead to what can't be seen: modules and names in them, with the fix."""


class Walk:
    """Objects become nodes of a graph; what each of them says, ``look`` finds out.

    Attributes
    ----------
    docstrings, annotations
        Whether these count.
    names
        All names and strings that occur in code of the user.
    modules
        The names of all modules of the user that were reached.
    """

    def __init__(self, look: Look, docstrings: bool, annotations: bool) -> None:
        self.docstrings, self.annotations = docstrings, annotations
        self.names: set[str] = set()
        self.modules: set[str] = set()
        self._look = look
        self._graph = Graph()
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # or another object would get an id that is known
        self._origins: list[tuple[int, str]] = []
        self._owners: dict[int, str] = {}
        self._pending: deque[tuple[int, Any]] = deque()
        self._labels: dict[int, str | None] = {}
        self._libraries: dict[str, str | None] = {}
        self._at = -1
        self._root = self._add("")

    def digest(self, parts: list[Part]) -> str:
        """Return the digest of what was found, when nothing is left to be looked into."""
        assert not self._pending
        self._graph.parts[self._root] = parts
        return self._graph.digest(self._root).hex()

    def digests_by_owner(self) -> dict[str, str]:
        """Return digests of what functions and classes of the user say, by their names.

        What is reached from one of them without another in between is its own.
        """
        said: dict[str, list[bytes]] = {}
        for number, parts in enumerate(self._graph.parts):
            at = number
            while at >= 0 and at not in self._owners:
                at, _ = self._origins[at]
            # Of what is installed a single part is known, its name and version.
            if at >= 0 and len(self._graph.parts[at]) > 1:
                said.setdefault(self._owners[at], []).append(_own(parts))
        return {
            name: digest_of(b"".join(parts)).hex()[:SHORT] for name, parts in sorted(said.items())
        }

    def libraries(self) -> set[str]:
        """Return the distributions that were reached, with their versions."""
        return {library for library in self._libraries.values() if library is not None}

    def look(self) -> bool:
        """Look into all that was found; return whether there was any."""
        any_left = bool(self._pending)
        while self._pending:
            self._at, value = self._pending.popleft()
            try:
                self._graph.parts[self._at] = self._look(self, value)
            except FingerprintError:
                raise
            except Exception as error:  # objects may raise whatever they like
                self.refuse(f"it can't be looked into: {type(error).__name__}: {error}")
        self._at = self._root
        return any_left

    def child(self, value: Any, step: str = "") -> bytes | int:
        """Return what stands for a value: bytes, or the number of its node.

        ``step``: what leads there from the object that is being looked into.
        """
        found = plain(value)
        if found is not None:
            return found
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._add(step)
            self._alive.append(value)
            self._pending.append((number, value))
            if isinstance(value, FunctionType | type):
                self._owners[number] = value.__qualname__.replace("<locals>.", "")
        return number

    def attributes(self, values: Mapping[str, Any]) -> list[Part]:
        """Return what stands for attributes with their names."""
        parts: list[Part] = [b"%d attributes" % len(values)]
        for name, value in values.items():
            parts += str(name).encode(), self.child(value, f".{name}")
        return parts

    def refuse(self, problem: str, step: str = "") -> NoReturn:
        """Say what can't be seen into, and the way that leads there."""
        steps = [step]
        at = self._at
        while at >= 0:
            at, step = self._origins[at]
            steps.append(step)
        raise FingerprintError("".join(reversed(steps)), problem)

    def allow(self, name: str, step: str = "") -> None:
        """Refuse what is known by name to lead to what can't be seen."""
        problem = REFUSED.get(name) or REFUSED.get(name.partition(".")[0])
        if problem is not None:
            self.refuse(f"{name}: {problem}", step)

    def reach(self, names: Mapping[str, Any]) -> None:
        """Note a module of the user by its names, and those that it imports."""
        pending = [names]
        while pending:
            names = pending.pop()
            module = str(names.get("__name__", ""))
            if module not in self.modules:
                self.modules.add(module)
                pending += [
                    vars(value)
                    for value in list(names.values())
                    if isinstance(value, ModuleType) and self.library(value.__name__) is None
                ]

    def library(self, module: str) -> str | None:
        """Return the distribution that a module is of, ``None`` for the user's own."""
        if module not in self._libraries:
            self._libraries[module] = installed(module)
        return self._libraries[module]

    def label(self, value: Any) -> str | None:
        """Return distribution and name of what is installed, if the name leads to it."""
        if id(value) not in self._labels:
            self._alive.append(value)
            self._labels[id(value)] = self._find_label(value)
        return self._labels[id(value)]

    def stands(self, value: Any, module: str, name: str) -> bool:
        """Return whether a name in a module leads to an object."""
        found: Any = sys.modules.get(module)
        for attribute in name.split("."):
            found = _got(found, attribute)
        return found is value

    def _add(self, step: str) -> int:
        self._origins.append((self._at, step))
        return self._graph.add()

    def _find_label(self, value: Any) -> str | None:
        module = _got(value, "__module__")
        name = _got(value, "__qualname__") or _got(value, "__name__")
        if not (isinstance(module, str) and isinstance(name, str)):
            return None
        library = self.library(module)
        # Python's own classes need not be anywhere by name.
        of_python = isinstance(value, type) and not value.__flags__ & _HEAP_TYPE
        if library is None or not (of_python or self.stands(value, module, name)):
            return None
        self.allow(f"{module}.{name}")
        return f"{library} {module}.{name}"


Look = Callable[[Walk, Any], list[Part]]
"""What finds out what an object says."""

_HEAP_TYPE = 1 << 9


def _own(parts: list[Part]) -> bytes:
    """Return what an object says itself, without the others that it leads to."""

    def said(part: Part) -> bytes:
        if isinstance(part, frozenset):
            return b"{%b}" % b"".join(sorted(map(said, part)))
        return b"." if isinstance(part, int) else b"%d:%b" % (len(part), part)

    return b"(%b)" % b"".join(map(said, parts))


def short(value: Any) -> str:
    """Return a value in few letters, for messages."""
    text = value.__qualname__ if isinstance(value, type) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _got(value: Any, name: str) -> Any:
    # Objects may raise whatever they like.
    try:
        return getattr(value, name, None)
    except Exception:
        return None
