"""What code objects do, whatever file, lines and layout they were compiled from."""

from __future__ import annotations

import dis
import marshal
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from hepcache.results.digests import digest_of, literal

__all__ = ["Code", "Import", "Read", "code_of", "plain"]

Import = tuple[int, str, tuple[str, ...]]
"""An import statement: how many packages up, the module, and the names taken of it."""

_NOTHING = {"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PUSH_NULL"}
_JUMPS = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
# Python joins two instructions where they stand on one line.
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
# Python calls attributes of what the same text imports in another way than others.
_SAME = {"LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_METHOD": "LOAD_ATTR"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
# Notes of the compiler in the body of a class.
_NOTES = {"__firstlineno__", "__static_attributes__"}
_IMPORTERS = {"import_module", "__import__"}
_LOOKS_AT_LOCALS = {"locals", "vars", "dir", "eval", "exec"}
# *args, **kwargs, generators, coroutines and asynchronous generators.
_FLAGS = 0x04 | 0x08 | 0x20 | 0x80 | 0x100 | 0x200
_MOST_CODES = 20_000


@dataclass(frozen=True, slots=True, order=True)
class Read:
    """A global name that code reads.

    ``chain``: the name, and the attributes that are taken of it at once.
    ``argument``: what it is called with, where it imports a module by a constant name.
    ``optional``: the body of a class may have a name of its own instead.
    """

    chain: tuple[str, ...]
    argument: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """What a code object does, with those inside it.

    ``names``: all names that occur, of attributes and variables; ``strings``: all constants
    of text.
    """

    digest: bytes
    reads: tuple[Read, ...]
    imports: tuple[Import, ...]
    names: frozenset[str]
    strings: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Step:
    offset: int
    name: str
    operand: bytes
    target: int | None


_codes: dict[tuple[int, bool], tuple[CodeType, Code]] = {}
_contents: dict[tuple[bytes, bool], Code] = {}


def code_of(code: CodeType, docstrings: bool = False) -> Code:
    """Return what a code object does; it is found out once of the same content."""
    # A code object compares by value, which takes longer than the digest: its id is the key,
    # and holding it keeps the id its own.
    found = _codes.get((id(code), docstrings))
    if found is not None:
        return found[1]
    # Code that is sent along with tasks is unpickled for every one of them.
    content = marshal.dumps(code), docstrings
    known = _contents.get(content)
    if known is not None:
        return known
    made = _Reader(code, docstrings).read()
    if len(_codes) >= _MOST_CODES:
        _codes.clear()
        _contents.clear()
    _codes[id(code), docstrings] = code, made
    _contents[content] = made
    return made


def plain(value: Any) -> bytes | None:
    """Return what stands for a plain value, ``None`` for others."""
    kind = type(value)
    if kind is str:
        return literal("str", value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return literal("bytes", value)
    if kind is int:
        return b"int:%x" % value if value >= 0 else b"int:-%x" % -value
    if kind is float:
        return b"float:" + struct.pack("<d", value)
    if kind is complex:
        return b"complex:" + struct.pack("<dd", value.real, value.imag)
    if value is None or kind is bool or value is Ellipsis or value is NotImplemented:
        return b"is:" + repr(value).encode()
    return None


class _Reader:
    """One code object on its way to a :class:`Code`."""

    def __init__(self, code: CodeType, docstrings: bool) -> None:
        self.code, self.docstrings = code, docstrings
        self.instructions = [
            found for found in dis.get_instructions(code) if found.opname not in _NOTHING
        ]
        self.inner: list[Code] = []
        self.names: set[str] = {
            found.argval
            for found in self.instructions
            if found.opcode in dis.hasname and not _is_of_class(found)
        }
        self.strings: set[str] = set()
        arguments = code.co_argcount + code.co_kwonlyargcount
        arguments += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
        self.parameters = code.co_varnames[:arguments]
        # Other local variables have numbers: their names decide nothing, unless code asks.
        self.locals: dict[str, int] = {name: at for at, name in enumerate(self.parameters)}

    def read(self) -> Code:
        code = self.code
        # Constants come first: what is inside may look at names.
        # dis gives the values of some only.
        used = {found.arg for found in self.instructions if found.opcode in dis.hasconst}
        constants = {at: self._constant(code.co_consts[at]) for at in used if at is not None}
        for inner in self.inner:
            self.names |= inner.names
            self.strings |= inner.strings
        named_locals = not self.names.isdisjoint(_LOOKS_AT_LOCALS)
        header = (
            code.co_name,
            code.co_argcount,
            code.co_posonlyargcount,
            code.co_kwonlyargcount,
            code.co_flags & _FLAGS,
            self.parameters,
            code.co_freevars,
            code.co_varnames if named_locals else (),
        )
        pieces = [repr(header).encode()]
        if self.docstrings and code.co_consts and isinstance(code.co_consts[0], str):
            pieces.append(b"doc:" + code.co_consts[0].encode("utf-8", "surrogatepass"))
        pieces += self._flow(list(self._steps(constants)))
        reads = {read for inner in self.inner for read in inner.reads} | set(self._reads())
        imports = {found for inner in self.inner for found in inner.imports}
        imports.update(self._imports())
        return Code(
            digest=digest_of(b"".join(b"%d:%b" % (len(piece), piece) for piece in pieces)),
            reads=tuple(sorted(reads)),
            imports=tuple(sorted(imports)),
            names=frozenset(self.names),
            strings=frozenset(self.strings),
        )

    def _constant(self, value: Any) -> bytes:
        if isinstance(value, CodeType):
            inner = code_of(value, self.docstrings)
            self.inner.append(inner)
            return b"code:" + inner.digest
        if isinstance(value, str):
            self.strings.add(value)
        found = plain(value)
        if found is not None:
            return found
        if isinstance(value, slice):  # a constant from Python 3.14 on
            value = ("slice", value.start, value.stop, value.step)
        members = [self._constant(member) for member in value]
        if isinstance(value, frozenset):
            members.sort()
        pieces = b"".join(b"%d:%b" % (len(member), member) for member in members)
        return b"%b:%b" % (type(value).__name__.encode(), digest_of(pieces))

    def _steps(self, constants: dict[int, bytes]) -> Iterator[_Step]:
        """Yield instructions without the compiler's notes, in its own order."""
        dropped: set[int] = set()
        unread = _NOTES if self.docstrings else {*_NOTES, "__doc__"}
        for before, after in zip(self.instructions, self.instructions[1:], strict=False):
            if after.opname == "STORE_NAME" and after.argval in unread:
                dropped |= {before.offset, after.offset}
        for found in self.instructions:
            if found.offset in dropped:
                continue
            names = _PAIRS.get(found.opname)
            if names is not None:
                first, second = map(self._local, found.argval)
                yield _Step(found.offset, names[0], first, None)
                yield _Step(found.offset + 1, names[1], second, None)
                continue
            operand, target = b"", None
            if found.opcode in dis.hasjrel or found.opcode in dis.hasjabs:
                target = found.argval
            elif found.opcode in dis.hasconst and found.arg is not None:
                operand = constants[found.arg]
            elif found.opcode in dis.haslocal:
                operand = self._local(found.argval)
            elif found.opname in _GLOBALS | _ATTRIBUTES:
                operand = found.argval.encode()
            elif found.opcode in dis.hasname or found.opcode in dis.hasfree:
                operand = found.argrepr.encode()
            elif found.arg is not None:
                operand = b"%d" % found.arg
            name = _SAME.get(found.opname, found.opname)
            yield _Step(found.offset, name, operand, target)

    def _local(self, name: str) -> bytes:
        return b"local %d" % self.locals.setdefault(name, len(self.locals))

    def _flow(self, steps: Sequence[_Step]) -> Iterator[bytes]:
        """Yield the instructions in the order in which they can be reached.

        Lines decide where the compiler leaves jumps to jumps, or instructions that do
        nothing, so neither counts.
        """
        follow = _follower(steps)
        handlers = self._handlers(steps)
        numbers: dict[int, int] = {}
        pending = [follow(0)] if steps else []
        while pending:
            at = pending.pop()
            while at not in numbers:
                numbers[at] = len(numbers)
                handler, target = handlers[at], steps[at].target
                if handler is not None:
                    pending.append(follow(handler.target))
                if target is not None:
                    pending.append(follow(target))
                if steps[at].name in _ENDS | _JUMPS:
                    break
                at = follow(steps[at + 1].offset)
        for at, number in numbers.items():
            step, handler = steps[at], handlers[at]
            yield step.name.encode()
            yield step.operand
            if step.target is not None:
                yield b"to %d" % numbers[follow(step.target)]
            if step.name not in _ENDS | _JUMPS:
                following = numbers[follow(steps[at + 1].offset)]
                if following != number + 1:
                    yield b"then %d" % following
            if handler is not None:
                target = numbers[follow(handler.target)]
                yield b"else %d %d %d" % (target, handler.depth, handler.lasti)

    def _handlers(self, steps: Sequence[_Step]) -> list[Any]:
        """Return for each instruction where an exception leads."""
        entries = dis.Bytecode(self.code).exception_entries  # type: ignore[attr-defined]
        return [
            next((entry for entry in entries if entry.start <= step.offset < entry.end), None)
            for step in steps
        ]

    def _reads(self) -> Iterator[Read]:
        own = {found.argval for found in self.instructions if found.opname == "STORE_NAME"}
        for at, found in enumerate(self.instructions):
            if found.opname not in _GLOBALS or _is_of_class(found):
                continue
            chain = [found.argval]
            following = at + 1
            while (
                following < len(self.instructions)
                and self.instructions[following].opname in _ATTRIBUTES
            ):
                chain.append(self.instructions[following].argval)
                following += 1
            argument = ""
            if chain[-1] in _IMPORTERS:
                argument = self._only_argument(following)
            yield Read(tuple(chain), argument, found.argval in own)

    def _only_argument(self, at: int) -> str:
        """Return the constant string that is the only argument of a call."""
        after = [found for found in self.instructions[at : at + 3] if found.opname != "PRECALL"]
        if len(after) < 2 or after[0].opname != "LOAD_CONST":
            return ""
        called = after[1].opname == "CALL" and after[1].arg == 1
        return after[0].argval if called and isinstance(after[0].argval, str) else ""

    def _imports(self) -> Iterator[Import]:
        for at, found in enumerate(self.instructions):
            if found.opname == "IMPORT_NAME":
                level, names = (before.argval for before in self.instructions[at - 2 : at])
                yield level, found.argval, tuple(names or ())


def _is_of_class(found: dis.Instruction) -> bool:
    """Return whether an instruction is about a name that the body of a class has itself."""
    own = found.opname == "LOAD_NAME" and found.argval == "__annotations__"
    return own or found.opname == "STORE_NAME"


def _follower(steps: Sequence[_Step]) -> Callable[[int], int]:
    """Return what finds the instruction that an offset leads to, past plain jumps."""
    starts: dict[int, int] = {}
    last = -1
    for at, step in enumerate(steps):
        for offset in range(last + 1, step.offset + 1):
            starts[offset] = at
        last = max(last, step.offset)

    def follow(offset: int) -> int:
        seen = set()
        at = starts[offset]
        while steps[at].name in _JUMPS and at not in seen:
            seen.add(at)
            target = steps[at].target
            assert target is not None
            at = starts[target]
        return at

    return follow
