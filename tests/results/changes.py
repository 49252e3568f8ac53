"""Small programs and changes of them: those that change results, and those that can't.

Each program makes ``thing``. It is one text, or several files: lines such as ``#: helpers.py``
begin another.
"""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A text, and what is replaced in it."""

    text: str
    old: str
    new: str

    @property
    def before(self) -> str:
        return self.text

    @property
    def after(self) -> str:
        assert self.old in self.text, self.old
        return self.text.replace(self.old, self.new)


FUNCTION = """
def thing(events, cut=25, *, scale=1.5):
    total = 0
    for event in events:
        if event.pt > cut and event.eta < 2.5:
            total += event.pt * scale
    return total
"""

HELPERS = """
LIMIT = 30
NAMES = ["a", "b"]
WEIGHTS = {"ee": 1, "mumu": 2}
ALLOWED = {1, 2, 3}

def inner(value):
    return value * 2

def helper(value):
    return inner(value) + LIMIT

def thing(value):
    return [helper(value), NAMES, WEIGHTS, ALLOWED]
"""

CLASSES = """
from coffea.processor import ProcessorABC

class Root:
    width = 40

    def select(self, events):
        return events[events.pt > 20]

class Base(Root, ProcessorABC):
    def postprocess(self, accumulator):
        return accumulator

class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return getattr(instance, self.name, 3)

class Thing(Base):
    bins = 10
    least = Positive()

    def __init__(self, cut, names):
        self.cut, self.names = cut, names

    @property
    def double(self):
        return self.cut * 2

    @staticmethod
    def ratio(a, b):
        return a / b

    @classmethod
    def usual(cls):
        return cls(5, [])

    def process(self, events):
        return super().postprocess(self.select(events))

thing = Thing(25.0, ["mu", ["e"]])
"""

HELD = """
import datetime, decimal, re, pathlib
import awkward as ak
import hist
import numpy as np
import scipy.sparse
import vector

def thing():
    return held

held = {}
"""


def held(value: str, other: str) -> Change:
    return Change(HELD, "{}", f"[{value}]")._replace(
        text=HELD.replace("{}", value), old=value, new=other
    )


CORRECTION = """
import correctionlib

TEXT = '''{
    "schema_version": 2,
    "corrections": [{
        "name": "sf", "version": 1, "inputs": [{"name": "pt", "type": "real"}],
        "output": {"name": "weight", "type": "real"},
        "data": {"nodetype": "binning", "input": "pt", "edges": [0.0, 20.0, 100.0],
                 "content": [0.5, 1.5], "flow": "clamp"}
    }]
}'''

class Thing:
    def __init__(self):
        self.factors = correctionlib.CorrectionSet.from_string(TEXT)["sf"]

    def process(self, events):
        return self.factors.evaluate(events)

thing = Thing()
"""

CHANGING: dict[str, Change] = {
    # code
    "a constant": Change(FUNCTION, "2.5", "2.4"),
    "a constant's type": Change(FUNCTION, "total = 0", "total = 0.0"),
    "a constant's sign": Change(FUNCTION, "total = 0", "total = -0.0"),
    "a comparison": Change(FUNCTION, "pt > cut", "pt >= cut"),
    "an operator": Change(FUNCTION, "pt * scale", "pt / scale"),
    "and, or": Change(FUNCTION, " and ", " or "),
    "an attribute": Change(FUNCTION, "event.eta", "event.phi"),
    "a default": Change(FUNCTION, "cut=25", "cut=26"),
    "a keyword's default": Change(FUNCTION, "scale=1.5", "scale=1.6"),
    "a parameter's name": Change(FUNCTION, "scale", "factor"),
    "a parameter's kind": Change(FUNCTION, "*, scale", "scale"),
    "where a block ends": Change(FUNCTION, "    return total", "        return total"),
    "an argument's name": Change("def thing(f):\n    return f(a=1)", "a=1", "b=1"),
    "which exception": Change(
        "def thing(f):\n    try:\n        return f()\n    except KeyError:\n        return 1",
        "KeyError",
        "ValueError",
    ),
    "what is tried": Change(
        "def thing(f, g):\n    try:\n        f()\n    except KeyError:\n        g()\n    g()",
        "        f()\n",
        "        f()\n        g()\n",
    ),
    "finally": Change(
        "def thing(f, g):\n    try:\n        return f()\n    finally:\n        g()",
        "finally:",
        "except KeyError:",
    ),
    "a format": Change("def thing(x):\n    return f'{x:.2f}'", ".2f", ".3f"),
    "a comprehension": Change("def thing(v):\n    return [x for x in v if x > 1]", "> 1", "> 2"),
    "a generator": Change(
        "def thing(v):\n    return [x for x in v]", "[x for x in v]", "(x for x in v)"
    ),
    "yield": Change("def thing(v):\n    return v", "return", "yield"),
    "async": Change("async def thing(v):\n    return v + 1", "+ 1", "+ 2"),
    "await": Change("async def thing(v):\n    return await v", "await v", "v"),
    "a lambda": Change(
        "TABLE = {'a': lambda x: x + 1}\ndef thing(v):\n    return TABLE['a'](v)", "+ 1", "+ 2"
    ),
    "an inner function": Change(
        "def thing(v):\n    def inner(x):\n        return x + 1\n    return inner(v)", "+ 1", "+ 2"
    ),
    "an inner function's global": Change(
        "LIMIT = 1\ndef thing(v):\n    def inner(x):\n        return x + LIMIT\n"
        "    return inner(v)",
        "= 1",
        "= 2",
    ),
    "an inner class's global": Change(
        "LIMIT = 1\ndef thing(v):\n    class Inner:\n        limit = LIMIT\n    return Inner",
        "= 1",
        "= 2",
    ),
    "a name of Python": Change("def thing(v):\n    return min(v)", "min", "max"),
    "a name of Python that is the module's": Change(
        "def thing(v):\n    return min(v)", "def thing", "def min(v):\n    return 3\n\ndef thing"
    ),
    "a function of NumPy": Change(
        "import numpy as np\ndef thing(v):\n    return np.sum(v)", "np.sum", "np.prod"
    ),
    "a function by its own name": Change(
        "from math import sin as f\ndef thing(v):\n    return f(v)", "sin", "cos"
    ),
    "a ufunc by its own name": Change(
        "from numpy import sin as f\ndef thing(v):\n    return f(v)", "sin", "cos"
    ),
    "a module by its own name": Change(
        "import math as m\ndef thing(v):\n    return m.sin(v)", "math", "cmath"
    ),
    # what functions reach
    "a helper": Change(HELPERS, "+ LIMIT", "- LIMIT"),
    "a helper's helper": Change(HELPERS, "value * 2", "value * 3"),
    "a constant that a helper reads": Change(HELPERS, "LIMIT = 30", "LIMIT = 31"),
    "a list of the module": Change(HELPERS, '"b"]', '"c"]'),
    "a dictionary of the module": Change(HELPERS, '"mumu": 2', '"mumu": 3'),
    "a dictionary's order": Change(HELPERS, '"ee": 1, "mumu": 2', '"mumu": 2, "ee": 1'),
    "a set of the module": Change(HELPERS, "{1, 2, 3}", "{1, 2, 4}"),
    "a closure's value": Change(
        "def make(limit):\n    return lambda x: x > limit\nthing = make(3)", "make(3)", "make(4)"
    ),
    "a closure's function": Change(
        "def make(f):\n    return lambda x: f(x)\nthing = make(lambda x: x + 1)", "+ 1", "+ 2"
    ),
    "a decorator": Change(
        """
import functools

def times(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapped(*values):
            return factor * function(*values)
        return wrapped
    return decorate

@times(2)
def thing(value):
    return value + 1
""",
        "factor * function",
        "factor + function",
    ),
    "a decorator's argument": Change(
        """
def times(factor):
    def decorate(function):
        return lambda value: factor * function(value)
    return decorate

@times(2)
def thing(value):
    return value + 1
""",
        "@times(2)",
        "@times(3)",
    ),
    "what is decorated": Change(
        """
import contextlib

@contextlib.contextmanager
def scaled(value):
    yield value * 2

def thing(value):
    with scaled(value) as found:
        return found
""",
        "* 2",
        "* 3",
    ),
    "what is cached": Change(
        "import functools\n@functools.lru_cache\ndef thing(x):\n    return x + 1", "+ 1", "+ 2"
    ),
    "a partial's argument": Change(
        "import functools\ndef f(a, b):\n    return a + b\nthing = functools.partial(f, 1, b=2)",
        "b=2",
        "b=3",
    ),
    "a partial's function": Change(
        "import functools\ndef f(a, b):\n    return a + b\nthing = functools.partial(f, 1)",
        "a + b",
        "a - b",
    ),
    "a registered function": Change(
        """
import functools

@functools.singledispatch
def thing(value):
    return value

@thing.register
def of_int(value: int):
    return value + 1
""",
        "+ 1",
        "+ 2",
    ),
    "a vectorized function": Change(
        "import numpy as np\n@np.vectorize\ndef thing(x):\n    return x + 1", "+ 1", "+ 2"
    ),
    "a function for numba": Change(
        "import numba\n@numba.njit\ndef thing(x):\n    return x + 1", "+ 1", "+ 2"
    ),
    "numba's options": Change(
        "import numba\n@numba.njit\ndef thing(x):\n    return x + 1",
        "@numba.njit",
        "@numba.njit(fastmath=True)",
    ),
    "a ufunc of numba": Change(
        "import numba\n@numba.vectorize\ndef thing(x):\n    return x + 1", "+ 1", "+ 2"
    ),
    "the types that numba compiles for": Change(
        "import numba\n@numba.njit('f8(f8)')\ndef thing(x):\n    return x + 1", "f8(f8)", "f4(f4)"
    ),
    "a ufunc's types": Change(
        "import numba\n@numba.vectorize(['f8(f8)'])\ndef thing(x):\n    return x + 1",
        "f8(f8)",
        "f4(f4)",
    ),
    "a generalized ufunc of numba": Change(
        "import numba\n@numba.guvectorize('(n)->()')\ndef thing(x, out):\n    out[0] = x[0]",
        "x[0]",
        "x[1]",
    ),
    "a method's object": Change(
        "class A:\n    def __init__(self, a):\n        self.a = a\n    def f(self):\n"
        "        return self.a\nthing = A(1).f",
        "A(1)",
        "A(2)",
    ),
    "a registered behaviour": Change(
        """
import awkward as ak

@ak.mixin_class(ak.behavior)
class HepcacheTestJet:
    @property
    def double(self):
        return self.pt * 2

def thing(events):
    return ak.zip({"pt": events}, with_name="HepcacheTestJet").double
""",
        "* 2",
        "* 3",
    ),
    "a registered behaviour of another module": Change(
        """
import awkward as ak
import hepcache_test_behaviors

def thing(events):
    return ak.zip({"pt": events}, with_name="HepcacheTestMuon").double
#: hepcache_test_behaviors.py
import awkward as ak

@ak.mixin_class(ak.behavior)
class HepcacheTestMuon:
    @property
    def double(self):
        return self.pt * 2
""",
        "* 2",
        "* 3",
    ),
    "a registered function of a ufunc": Change(
        "import functools\nimport awkward as ak\nimport numpy as np\n"
        "def add(factor, a, b):\n    return a * factor + b\n"
        "ak.behavior[np.add, 'HepcacheTestA', 'HepcacheTestA'] = functools.partial(add, 2)\n"
        "def thing(x):\n    return x + x",
        "partial(add, 2)",
        "partial(add, 3)",
    ),
    "a docstring that is read": Change(
        'def thing():\n    """One."""\n    return thing.__doc__', "One", "Two"
    ),
    "annotations that are read": Change(
        "def thing(x: int = 1):\n    return thing.__annotations__", "int", "float"
    ),
    "a local variable's name that is read": Change(
        "def thing(x):\n    limit = 1\n    return locals()", "limit", "least"
    ),
    "a name that globals() finds": Change(
        "LIMIT = 1\ndef thing(name):\n    return globals()[name]", "= 1", "= 2"
    ),
    "a constant import by function": Change(
        "import importlib\ndef thing():\n"
        "    return importlib.import_module('hepcache_test_a').f()\n"
        "#: hepcache_test_a.py\ndef f():\n    return 1",
        "return 1",
        "return 2",
    ),
    # modules
    "a function of a module": Change(
        "import hepcache_test_a\ndef thing(x):\n    return hepcache_test_a.f(x)\n"
        "#: hepcache_test_a.py\ndef f(x):\n    return g(x)\ndef g(x):\n    return x + 1",
        "+ 1",
        "+ 2",
    ),
    "a constant of a package's module": Change(
        "import hepcache_test_p.cuts\ndef thing():\n    return hepcache_test_p.cuts.PT\n"
        "#: hepcache_test_p/__init__.py\n#: hepcache_test_p/cuts.py\nPT = 20",
        "20",
        "30",
    ),
    "a module that is imported inside": Change(
        "def thing():\n    import hepcache_test_a\n    return hepcache_test_a.f()\n"
        "#: hepcache_test_a.py\ndef f():\n    return 1",
        "return 1",
        "return 2",
    ),
    "a name that is imported inside": Change(
        "def thing():\n    from hepcache_test_a import f\n    return f()\n"
        "#: hepcache_test_a.py\ndef f():\n    return 1",
        "return 1",
        "return 2",
    ),
    "a module of a package that is imported inside": Change(
        "def thing():\n    from hepcache_test_p import cuts\n    return cuts.PT\n"
        "#: hepcache_test_p/__init__.py\n#: hepcache_test_p/cuts.py\nPT = 20",
        "20",
        "30",
    ),
    "a module whose names are made": Change(
        "import hepcache_test_a\ndef thing(name):\n    return getattr(hepcache_test_a, name)()\n"
        "#: hepcache_test_a.py\ndef f():\n    return 1",
        "return 1",
        "return 2",
    ),
    "a relative import": Change(
        "import hepcache_test_p\ndef thing():\n    return hepcache_test_p.f()\n"
        "#: hepcache_test_p/__init__.py\ndef f():\n    from .cuts import PT\n    return PT\n"
        "#: hepcache_test_p/cuts.py\nPT = 20",
        "20",
        "30",
    ),
    # classes
    "a base's attribute": Change(CLASSES, "width = 40", "width = 41"),
    "a base's method": Change(CLASSES, "pt > 20", "pt > 21"),
    "the bases": Change(CLASSES, "class Base(Root, ProcessorABC)", "class Base(ProcessorABC)"),
    "an attribute of the class": Change(CLASSES, "bins = 10", "bins = 20"),
    "a property": Change(CLASSES, "self.cut * 2", "self.cut * 3"),
    "a static method": Change(CLASSES, "a / b", "b / a"),
    "a class method": Change(CLASSES, "cls(5", "cls(6"),
    "a cached property": Change(
        "import functools\nclass A:\n    @functools.cached_property\n    def table(self):\n"
        "        return [1, 2, 3]\nthing = A()",
        "[1, 2, 3]",
        "[1, 2, 4]",
    ),
    "a descriptor": Change(CLASSES, "self.name, 3)", "self.name, 4)"),
    "an added method": Change(
        CLASSES, "    bins = 10\n", "    bins = 10\n    def width(self):\n        return 1\n"
    ),
    "a metaclass": Change(
        "class Meta(type):\n    def __len__(cls):\n        return 3\n"
        "class A(metaclass=Meta):\n    pass\ndef thing():\n    return len(A)",
        "return 3",
        "return 4",
    ),
    "a value of the instance": Change(CLASSES, "Thing(25.0", "Thing(25.5"),
    "a value's type": Change(CLASSES, "Thing(25.0", "Thing(25"),
    "a list inside a list": Change(CLASSES, '["e"]', '["tau"]'),
    "a slot": Change(
        "class A:\n    __slots__ = ('a',)\n    def __init__(self, a):\n"
        "        self.a = a\nthing = A(1)",
        "A(1)",
        "A(2)",
    ),
    "what __getstate__ leaves out": Change(
        "class A:\n    def __init__(self, a):\n        self.a = a\n"
        "    def __getstate__(self):\n        return {}\nthing = A(1)",
        "A(1)",
        "A(2)",
    ),
    "a list of one's own class": Change(
        "class A(list):\n    def __iter__(self):\n        return iter(())\nthing = A([1])",
        "A([1])",
        "A([2])",
    ),
    "a class of what is held": Change(
        "class Cut:\n    def passes(self, x):\n        return x > 1\n"
        "class A:\n    cuts = [Cut()]\nthing = A()",
        "> 1",
        "> 2",
    ),
    "a dataclass's default": Change(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    pt: float = 20.0\n"
        "    eta: float = 2.4\nthing = A(1.0)",
        "2.4",
        "2.5",
    ),
    "a dataclass's fields": Change(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    pt: float = 1\n"
        "    eta: float = 1\nthing = A",
        "pt: float = 1\n    eta: float = 1",
        "eta: float = 1\n    pt: float = 1",
    ),
    "a dataclass's options": Change(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    pt: float = 1\nthing = A",
        "@dataclass",
        "@dataclass(order=True)",
    ),
    "a named tuple's default": Change(
        "from typing import NamedTuple\nclass A(NamedTuple):\n    pt: float = 20.0\nthing = A",
        "20.0",
        "30.0",
    ),
    "a named tuple's fields": Change(
        "from collections import namedtuple\nA = namedtuple('A', 'pt eta')\n"
        "def thing():\n    return A(1, 2)",
        "pt eta",
        "eta pt",
    ),
    "an enum's value": Change(
        "from enum import Enum\nclass A(Enum):\n    EE = 1\n    MUMU = 2\ndef thing():\n"
        "    return A.EE",
        "MUMU = 2",
        "MUMU = 3",
    ),
    "an enum's order": Change(
        "from enum import Enum\nclass A(Enum):\n    EE = 1\n    MUMU = 2\ndef thing():\n"
        "    return list(A)",
        "EE = 1\n    MUMU = 2",
        "MUMU = 2\n    EE = 1",
    ),
    "an enum's method": Change(
        "from enum import IntFlag\nclass A(IntFlag):\n    EE = 1\n    MUMU = 2\n"
        "    def label(self):\n        return 'a'\nthing = A.EE | A.MUMU",
        "'a'",
        "'b'",
    ),
    "which member": Change(
        "from enum import Enum\nclass A(Enum):\n    EE = 1\n    MUMU = 2\nthing = A.EE",
        "A.EE",
        "A.MUMU",
    ),
    "what stands for the state": Change(
        "class A:\n    def __hepcache_fingerprint__(self):\n        return 'v1'\nthing = A()",
        "v1",
        "v2",
    ),
    # values
    "a string": held("'a'", "'b'"),
    "bytes": held("b'a'", "'a'"),
    "a truth": held("True", "1"),
    "a complex number": held("1 + 2j", "1 + 3j"),
    "a tuple": held("(1, 2)", "[1, 2]"),
    "a nesting": held("[1, [2]]", "[[1], 2]"),
    "a range": held("range(3)", "range(4)"),
    "a slice": held("slice(1, 2)", "slice(1, 3)"),
    "a frozen set": held("frozenset({1})", "frozenset({2})"),
    "keys": held("{'a': 1}.keys()", "{'b': 1}.keys()"),
    "a date": held("datetime.datetime(2024, 1, 2)", "datetime.datetime(2024, 1, 3)"),
    "a decimal number": held("decimal.Decimal('1.10')", "decimal.Decimal('1.1')"),
    "a pattern": held("re.compile('a')", "re.compile('b')"),
    "a pattern's flags": held("re.compile('a')", "re.compile('a', re.I)"),
    "a path": held("pathlib.Path('a')", "pathlib.Path('b')"),
    "an array's content": held("np.arange(5)", "np.arange(5) + 1"),
    "a large array's content": held("np.arange(100_000)", "np.arange(100_000)[::-1]"),
    "an array's dtype": held("np.zeros(4, 'i4')", "np.zeros(4, 'f4')"),
    "an array's shape": held("np.zeros((2, 3))", "np.zeros((3, 2))"),
    "an array's layout": held("np.zeros((2, 2))", "np.zeros((2, 2), order='F')"),
    "an array's fields": held("np.zeros(2, [('a', 'i4')])", "np.zeros(2, [('b', 'i4')])"),
    "an array of objects": held("np.array(['a', None])", "np.array(['b', None])"),
    "an array of strings": held("np.array(['a', 'b'])", "np.array(['a', 'c'])"),
    "a masked array": held("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[1, 0])"),
    "a scalar of NumPy": held("np.float32(1)", "np.float64(1)"),
    "a generator's seed": held("np.random.default_rng(1)", "np.random.default_rng(2)"),
    "an awkward array's content": held("ak.Array([[1], [2]])", "ak.Array([[1], [3]])"),
    "an awkward array's structure": held("ak.Array([[1], [2]])", "ak.Array([[1, 2]])"),
    "an awkward array's fields": held("ak.Array([{'a': 1}])", "ak.Array([{'b': 1}])"),
    "an awkward array's name": held(
        "ak.Array([{'a': 1}])", "ak.Array([{'a': 1}], with_name='Muon')"
    ),
    "a record": held("ak.Array([{'a': 1}, {'a': 2}])[0]", "ak.Array([{'a': 1}, {'a': 2}])[1]"),
    "an axis's edges": held("hist.axis.Regular(5, 0, 1)", "hist.axis.Regular(5, 0, 2)"),
    "an axis's name": held(
        "hist.axis.Regular(5, 0, 1, name='a')", "hist.axis.Regular(5, 0, 1, name='b')"
    ),
    "an axis's overflow": held(
        "hist.axis.Regular(5, 0, 1)", "hist.axis.Regular(5, 0, 1, overflow=False)"
    ),
    "an axis's categories": held("hist.axis.StrCategory(['a'])", "hist.axis.StrCategory(['b'])"),
    "a storage": held(
        "hist.Hist(hist.axis.Integer(0, 2))",
        "hist.Hist(hist.axis.Integer(0, 2), storage=hist.storage.Weight())",
    ),
    "a histogram's content": held(
        "hist.Hist(hist.axis.Integer(0, 2)).fill([1])",
        "hist.Hist(hist.axis.Integer(0, 2)).fill([0])",
    ),
    "a sparse matrix": held(
        "scipy.sparse.eye(2, format='csr')", "2 * scipy.sparse.eye(2, format='csr')"
    ),
    "a vector": held("vector.obj(x=1, y=2)", "vector.obj(x=1, y=3)"),
    "a correction": Change(CORRECTION, "[0.5, 1.5]", "[0.5, 1.6]"),
    "a lookup of coffea": Change(
        "import numpy as np\nfrom coffea.lookup_tools.dense_lookup import dense_lookup\n"
        "class A:\n    def __init__(self):\n"
        "        self.lookup = dense_lookup(np.ones(2), np.array([0, 1, 2]))\nthing = A()",
        "[0, 1, 2]",
        "[0, 1, 3]",
    ),
}

UNCHANGING: dict[str, Change] = {
    "a comment": Change(FUNCTION, "    return total", "    # the sum\n    return total  # of all"),
    "blank lines": Change(FUNCTION, "\n    for", "\n\n\n    for"),
    "indentation": Change(FUNCTION, "            total +=", "                 total +="),
    "parentheses": Change(FUNCTION, "event.pt * scale", "(event.pt * (scale))"),
    "lines of an expression": Change(
        FUNCTION,
        "event.pt > cut and event.eta < 2.5",
        "(\n    event.pt\n > cut\n   and\n event\n.eta\n <\n 2.5)",
    ),
    "lines of a choice": Change(
        "def thing(v):\n    total = 0\n    for x in v:\n"
        "        total += 1 if x > 1 else 2 if x else 3\n    return total",
        "1 if x > 1 else 2 if x else 3",
        "(1\n if x > 1\n else 2\n if x else\n 3)",
    ),
    "lines of a loop": Change(
        "def thing(v):\n    while True:\n        if v: break\n        else: continue\n"
        "    return v",
        "if v: break\n        else: continue",
        "if v:\n            break\n        else:\n            continue",
    ),
    "lines of a block": Change(
        "def thing(v):\n    with v as f: return f(v)", "f: return", "f:\n\n        return"
    ),
    "pass": Change(FUNCTION, "    total = 0", "    pass\n    total = 0"),
    "semicolons": Change(
        "def thing(v):\n    a = v\n    b = a\n    return b", "a = v\n    b = a", "a = v; b = a"
    ),
    "a local variable's name": Change(FUNCTION, "total", "result"),
    "quotes": Change(HELPERS, '["a", "b"]', "['a', 'b']"),
    "how a number is written": Change(FUNCTION, "cut=25", "cut=0x19"),
    "a constant expression": Change(FUNCTION, "2.5", "(2 + 0.5)"),
    "a docstring": Change(FUNCTION, "    total = 0", '    """Return the sum."""\n    total = 0'),
    "a class's docstring": Change(CLASSES, "class Root:\n", 'class Root:\n    """The first."""\n'),
    "an inner class's docstring": Change(
        "def thing():\n    class A:\n        x = 1\n    return A",
        "class A:\n",
        "class A:\n        'It.'\n",
    ),
    "the module's docstring": Change(FUNCTION, "\ndef thing", '"""Module."""\n\ndef thing'),
    "annotations": Change(FUNCTION, "events, cut=25", "events: list, cut: float = 25"),
    "annotations of a class": Change(CLASSES, "    bins = 10", "    bins: int = 10"),
    "annotations as text": Change(
        "def thing(x: int) -> float:\n    return x",
        "def thing",
        "from __future__ import annotations\ndef thing",
    ),
    "an unused function": Change(
        FUNCTION, "\ndef thing", "\ndef other():\n    return 1\n\ndef thing"
    ),
    "an unused constant": Change(FUNCTION, "\ndef thing", "\nOTHER = 1\n\ndef thing"),
    "an unused import": Change(FUNCTION, "\ndef thing", "\nimport socket\n\ndef thing"),
    "an unused function's code": Change(
        HELPERS + "\ndef other():\n    return 1\n", "return 1", "return 2"
    ),
    "a function's place": Change(
        "def a(x):\n    return x\ndef b(x):\n    return -x\ndef thing(x):\n    return a(b(x))",
        "def a(x):\n    return x\ndef b(x):\n    return -x\n",
        "def b(x):\n    return -x\ndef a(x):\n    return x\n",
    ),
    "a method's place": Change(
        "class A:\n    def a(self):\n        return 1\n    def b(self):\n"
        "        return 2\nthing = A()",
        "    def a(self):\n        return 1\n    def b(self):\n        return 2\n",
        "    def b(self):\n        return 2\n    def a(self):\n        return 1\n",
    ),
    "a set's order": Change(HELPERS, "{1, 2, 3}", "{3, 2, 1}"),
    "an unused function of a module": Change(
        "import hepcache_test_a\ndef thing(x):\n    return hepcache_test_a.f(x)\n"
        "#: hepcache_test_a.py\ndef f(x):\n    return x\ndef g(x):\n    return x + 1",
        "+ 1",
        "+ 2",
    ),
    "code that can't be reached": Change(
        FUNCTION, "    return total", "    return total\n    print(events)"
    ),
    "a return at the end": Change("def thing(f):\n    f()", "f()\n", "f()\n")._replace(
        old="    f()", new="    f()\n    return None"
    ),
    "a logger's name": Change(
        "import logging\nlog = logging.getLogger('a')\ndef thing(x):\n    log.info(x)\n"
        "    return x",
        "('a')",
        "('b')",
    ),
    "what is remembered": Change(
        "import functools\n@functools.lru_cache\ndef thing(x):\n    return x",
        "return x",
        "return x\nthing(1)",
    )._replace(old="    return x", new="    return x\nthing(1)"),
    "what a vectorized function remembers": Change(
        "import numpy as np\nthing = np.vectorize(lambda x: x)\n", "x)\n", "x)\nthing([1])\n"
    ),
    "what numba has compiled": Change(
        "import numba\n@numba.njit\ndef thing(x):\n    return x", "return x", "return x\nthing(1)"
    )._replace(old="    return x", new="    return x\nthing(1)"),
    "how an array was made": held("np.arange(5)", "np.arange(10)[:5]"),
    "how an awkward array was made": held(
        "ak.Array([[1], [2]])", "ak.Array([[1], [5], [2]])[[0, 2]]"
    ),
}
