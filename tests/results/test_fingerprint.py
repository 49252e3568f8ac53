from __future__ import annotations

import gc
import hashlib
import importlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import hist
import numpy as np
import pytest
import scipy.sparse
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compat.jets import Systematics, stack_of_texts, write_texts
from tests.results.changes import CHANGING, UNCHANGING
from tests.results.programs import from_module, from_notebook, in_directory, pickled_by_value

import hepcache
from hepcache import fingerprint
from hepcache.errors import FingerprintError
from hepcache.process.named_processor import load_processor
from hepcache.results import installed as installed_packages

ROOT = Path(__file__).parents[2]
ALL = {**CHANGING, **{f"not {name}": change for name, change in UNCHANGING.items()}}


@pytest.mark.parametrize("name", CHANGING)
def test_a_change_of_results_changes_it(name: str) -> None:
    change = CHANGING[name]
    assert in_directory(change.before) != in_directory(change.after)


@pytest.mark.parametrize("name", UNCHANGING)
def test_any_other_change_leaves_it(name: str) -> None:
    change = UNCHANGING[name]
    assert change.before != change.after
    assert in_directory(change.before) == in_directory(change.after)


@pytest.mark.parametrize("name", ALL)
def test_notebooks_and_modules_are_equal(name: str) -> None:
    text = ALL[name].before
    assert in_directory(text, from_notebook) == in_directory(text)


CHILD = """
import json, pickle, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.results.programs import from_module, in_directory
from hepcache import fingerprint

texts, pickles = json.load(sys.stdin)
loaded = {name: in_directory(text, from_module) for name, text in texts.items()}
sent = {name: fingerprint(pickle.loads(bytes.fromhex(data))) for name, data in pickles.items()}
json.dump([loaded, sent], sys.stdout)
"""


# Behaviours are in a registry, which is not sent along with code that finds them there; modules
# that are imported inside functions are found by their names; locks, weak references, views and
# caches can't be sent, nor what an object leaves out; two names cloudpickle doesn't see.
UNSENT = {
    "a cached property",
    "a constant import by function",
    "a generalized ufunc of numba",
    "a list of one's own class",
    "a module of a package that is imported inside",
    "a module that is imported inside",
    "a name that globals() finds",
    "a name that is imported inside",
    "a registered behaviour",
    "a registered behaviour of another module",
    "a registered function",
    "a registered function of a ufunc",
    "a relative import",
    "an inner class's global",
    "keys",
    "not what is remembered",
    "what __getstate__ leaves out",
    "what is cached",
}


@pytest.mark.slow  # another process imports all that the programs do, and compiles for numba
def test_other_processes_find_the_same() -> None:
    """Another seed of hashes, other directories, code that is sent along or is there."""
    texts = {name: change.before for name, change in ALL.items()}
    here = {name: in_directory(text, from_module) for name, text in texts.items()}
    sendable = {name: texts[name] for name in texts.keys() - UNSENT}
    pickles = {
        name: in_directory(text, pickled_by_value, bytes.hex) for name, text in sendable.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(ROOT)],
        input=json.dumps([texts, pickles]),
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded, sent = json.loads(done.stdout)
    assert loaded == here
    assert sent == {name: here[name] for name in pickles}


def test_code_that_is_unpickled_again_is_known_by_its_content(tmp_path: Path) -> None:
    text = "CUT = {}\ndef thing(events):\n    return [(lambda: n + CUT)() for n in events]"
    for cut in (1, 2):
        data = in_directory(text.format(cut), pickled_by_value, bytes)
        fresh = {fingerprint(pickle.loads(data)) for _ in range(3)}
        assert fresh == {in_directory(text.format(cut))}


REFUSED = {
    "a lock": (
        (
            "import threading\nclass A:\n    def __init__(self):\n"
            "        self.tools = {'a': Tool()}\nclass Tool:\n    def __init__(self):\n"
            "        self.lock = threading.Lock()\nthing = A()"
        ),
        r"A\.tools\['a'\]\.lock: an object of _thread\.lock .* or let its class define __hepcache",
    ),
    "an open file": (
        "import os\nclass A:\n    log = open(os.devnull)\nthing = A()",
        r"A\.log: an open file .* keep its path",
    ),
    "a socket": (
        "import socket\nsock = socket.socket()\ndef thing():\n    return sock.recv(1)",
        r"thing -> sock: an object of socket\.socket",
    ),
    "a thread": (
        "import threading\nworker = threading.Thread()\ndef thing():\n    return worker",
        r"thing -> worker\._",
    ),
    "a generator": (
        "numbers = (x for x in range(3))\ndef thing():\n    return next(numbers)",
        r"thing -> numbers: an object of builtins\.generator",
    ),
    "a weak reference": (
        (
            "import weakref\nclass A: pass\na = A()\nheld = weakref.ref(a)\ndef thing():\n"
            "    return held()"
        ),
        r"thing -> held: ",
    ),
    "a pointer": (
        "import ctypes\nheld = ctypes.c_int(3)\ndef thing():\n    return held",
        r"thing -> held: ctypes\.c_int: compiled code",
    ),
    "a closure over an open file": (
        "import os\ndef make(file):\n    return lambda: file\nthing = make(open(os.devnull))",
        r"make\.<locals>\.<lambda> -> file: an open file",
    ),
    "a default": (
        "import threading\ndef thing(lock=threading.Lock()):\n    return lock",
        r"thing\(default 0\): ",
    ),
    "a base's attribute": (
        (
            "import threading\nclass Base:\n    lock = threading.Lock()\n"
            "class A(Base): pass\nthing = A()"
        ),
        r"A -> Base\.lock: ",
    ),
    "an object that fails": (
        (
            "class A(dict):\n    def __reduce__(self):\n        1 / 0\n"
            "import collections\nclass B(collections.OrderedDict):\n    pass\n"
            "import decimal\nclass C(decimal.Decimal):\n"
            "    def __reduce__(self):\n        1 / 0\nthing = [C(1)]"
        ),
        r"list\[0\]: an object of .*\.C can't be seen into \(division by zero\)",
    ),
    "a statement that fails": (
        "class A:\n    def __hepcache_fingerprint__(self):\n        1 / 0\nthing = [A()]",
        r"list\[0\]: __hepcache_fingerprint__\(\) failed: ZeroDivisionError",
    ),
    "a name that is not there": (
        "def helper():\n    return missing\ndef thing():\n    return helper()",
        r"thing -> helper -> missing: no such name is defined",
    ),
    "a name that a module has not": (
        (
            "import hepcache_test_a\ndef thing():\n    return hepcache_test_a.f()\n"
            "#: hepcache_test_a.py\n"
        ),
        r"thing -> hepcache_test_a\.f: no such name is defined",
    ),
    "a module that fails": (
        "def thing():\n    import hepcache_test_a\n#: hepcache_test_a.py\n1 / 0",
        r"thing -> import hepcache_test_a: the import failed: ZeroDivisionError",
    ),
    "eval": ("def thing(text):\n    return eval(text)", r"thing -> eval: builtins\.eval: "),
    "exec": ("def thing(text):\n    exec(text)", r"thing -> exec: builtins\.exec: "),
    "compile": (
        "def thing(text):\n    return compile(text, '', 'eval')",
        "thing -> compile: builtins.compile",
    ),
    "eval by another name": (
        "run = eval\ndef thing(text):\n    return run(text)",
        r"thing -> run: builtins\.eval",
    ),
    "builtins": (
        "import builtins\ndef thing(text):\n    return builtins.eval(text)",
        r"thing -> builtins\.eval: ",
    ),
    "a module by name": (
        "import importlib\ndef thing(name):\n    return importlib.import_module(name)",
        r"thing -> importlib\.import_module: .* import it by a statement",
    ),
    "a module by name, too": (
        "from importlib import import_module\ndef thing(name):\n    return import_module(name)",
        r"thing -> import_module: ",
    ),
    "all modules": (
        "import sys\ndef thing(name):\n    return sys.modules[name]",
        r"thing -> sys\.modules: ",
    ),
    "the environment": (
        "import os\ndef thing():\n    return os.environ['CUT']",
        r"thing -> os\.environ: .* give the value to the processor",
    ),
    "the environment by its name": (
        "from os import environ\ndef thing():\n    return environ['CUT']",
        r"thing -> environ: the environment",
    ),
    "the environment in a function": (
        "def thing():\n    import os\n    return os.getenv('CUT')",
        r"thing -> import os: os\.getenv: ",
    ),
    "the environment by a string": (
        "import os\ndef thing():\n    return getattr(os, 'environ')",
        r"thing -> os: os\.environ: ",
    ),
    "another program": (
        "from subprocess import run\ndef thing():\n    return run(['ls'])",
        r"thing -> run: subprocess\.run: another program",
    ),
    "a pickle": (
        "import pickle\ndef thing(file):\n    return pickle.load(file)",
        r"thing -> pickle\.load: .* load it beforehand",
    ),
    "a library in C": (
        (
            "import ctypes\nclass A:\n    def process(self):\n"
            "        return ctypes.CDLL('a.so')\nthing = A()"
        ),
        r"A\.process -> ctypes\.CDLL: ",
    ),
    "its own subclasses": (
        "class A:\n    def process(self):\n        return A.__subclasses__()\nthing = A()",
        r"A\.process -> __subclasses__: ",
    ),
    "its own text": (
        "import inspect\ndef thing():\n    return inspect.getsource(thing)",
        r"thing -> inspect\.getsource: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:unclosed")
def test_what_can_not_be_seen_into_is_refused_by_name(name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(FingerprintError, match=f"no fingerprint of {words}") as caught:
        in_directory(text)
    assert caught.value.where in str(caught.value)
    assert caught.value.problem
    if "file" in name or "socket" in name:
        del caught
        gc.collect()  # it warns of what is still open


def test_a_root_file_is_refused(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "a.root") as file:
        file["h"] = np.histogram([1.0])
    with uproot.open(tmp_path / "a.root") as file:
        with pytest.raises(FingerprintError, match=r"list\[0\]: an open file"):
            fingerprint([file])
        assert fingerprint([file["h"].to_hist()])


def test_compiled_code_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math.sin, "__module__", "hepcache_test_compiled")
    with pytest.raises(FingerprintError, match=r"_compiled\.sin is compiled code"):
        fingerprint([math.sin])


@pytest.mark.parametrize("how", ["file", "module"])
def test_processors_of_the_examples(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    for name in ("hh_bbll", "lhcb_b2hhh"):
        path = str(ROOT / "examples" / f"{name}.py")
        found = load_processor(f"{path if how == 'file' else name}:Processor")
        first = fingerprint(found)
        began = time.thread_time()
        assert fingerprint(found) == first
        assert time.thread_time() - began < 0.05  # some 1 ms
        assert fingerprint(pickle.loads(cloudpickle.dumps(found))) == first
        cloudpickle.unregister_pickle_by_value(sys.modules.pop(name))
    other = load_processor(f"{ROOT / 'examples' / 'hh_bbll.py'}:Processor", {"met_min": 21})
    assert fingerprint(other) != first


@pytest.mark.filterwarnings("ignore")  # of coffea's readers
def test_a_processor_with_corrections(tmp_path: Path) -> None:
    """Lookups of coffea that numba has compiled, of formulas in text files."""
    texts = write_texts(tmp_path)
    first = fingerprint(Systematics(stack_of_texts(texts), tmp_path))
    assert fingerprint(Systematics(stack_of_texts(texts), tmp_path)) == first
    texts[0].write_text(texts[0].read_text().replace("3000", "3001"))
    assert fingerprint(Systematics(stack_of_texts(texts), tmp_path)) != first
    gc.collect()


def test_models_count_by_content() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    rows = np.random.default_rng(1).random((50, 2))

    def trained(seed: int) -> Any:
        model = ensemble.RandomForestClassifier(3, random_state=seed)
        return model.fit(rows, rows[:, 0] > 0.5)

    model = trained(1)
    first = fingerprint(model)
    model.predict(rows)
    assert fingerprint(model) == first
    assert fingerprint(trained(1)) == first
    assert fingerprint(trained(2)) != first


def test_sessions_of_onnxruntime_count_by_the_model(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")

    def session(factor: float, path: Path | None = None) -> Any:
        vector = [onnx.helper.make_tensor_value_info(name, 1, [None]) for name in "xy"]
        factors = [onnx.helper.make_tensor("c", 1, [1], [factor])]
        node = onnx.helper.make_node("Mul", ["x", "c"], ["y"])
        graph = onnx.helper.make_graph([node], "g", vector[:1], vector[1:], factors)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
        model.ir_version = 8
        if path is None:
            return runtime.InferenceSession(model.SerializeToString())
        path.write_bytes(model.SerializeToString())
        return runtime.InferenceSession(path)

    first = fingerprint(session(2.0))
    assert fingerprint(session(2.0, tmp_path / "model.onnx")) == first
    assert fingerprint(session(3.0)) != first


def test_large_arrays_are_hashed_at_the_speed_of_memory() -> None:
    array = np.ones(25_000_000)
    fingerprint(array[:10])
    began = time.thread_time()
    fingerprint(array)
    assert time.thread_time() - began < 0.2  # 200 MB; some 20 ms


def test_a_module_that_was_read_again_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made before holds the old classes, whose methods read the new ones by name."""
    monkeypatch.syspath_prepend(tmp_path)
    text = """
class Base:
    def process(self):
        return helper(Thing)

class Thing(Base):
    def process(self):
        return super().process(), Thing.limit, helper

    limit = 3

def helper(kind):
    return kind().process()
"""
    (tmp_path / "hepcache_test_reloaded.py").write_text(text)
    module = importlib.import_module("hepcache_test_reloaded")
    old = module.Thing()
    first = fingerprint(old)
    importlib.reload(module)
    assert type(old) is not module.Thing
    assert fingerprint(module.Thing()) == first
    assert fingerprint(old) == first
    (tmp_path / "hepcache_test_reloaded.py").write_text(text.replace("= 3", "= 44"))
    importlib.reload(module)
    del sys.modules["hepcache_test_reloaded"]
    assert fingerprint(module.Thing()) != first
    assert fingerprint(old) != first  # its methods use the new class


def test_circles_and_depth() -> None:
    one: list[object] = [1]
    one.append(one)
    other: list[object] = [1]
    other.append([1, other])
    assert fingerprint(one) == fingerprint(other)
    other.append(2)
    assert fingerprint(one) != fingerprint(other)
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert fingerprint(deep) != fingerprint(deep[0])


def test_values_that_change_change_it() -> None:
    histogram = hist.Hist(hist.axis.Integer(0, 3), storage=hist.storage.Weight())
    held = {"h": histogram, "array": np.zeros(3), "rng": np.random.default_rng(1)}
    seen = {fingerprint(held)}
    for change in (
        lambda: histogram.fill([1]),
        lambda: held["array"].put(1, 5.0),
        lambda: held["rng"].random(),
        lambda: held.pop("rng"),
    ):
        change()
        seen.add(fingerprint(held))
    assert len(seen) == 5


@pytest.fixture
def forget_distributions() -> Iterator[Callable[[], None]]:
    def forget() -> None:
        installed_packages._libraries.clear()
        for name in ("identity", "_packages", "_roots"):
            getattr(installed_packages, name).cache_clear()

    forget()
    yield forget
    forget()


@pytest.mark.parametrize(
    ("changed", "for_scipy", "for_others"),
    [("scipy", True, False), ("uproot", True, True), ("rich", False, False)],
)
def test_versions_count(
    changed: str,
    for_scipy: bool,
    for_others: bool,
    forget_distributions: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reads_scipy() -> object:
        return scipy.sparse.eye

    before = fingerprint(reads_scipy), fingerprint(len)
    kind = type(metadata.distribution(changed))
    found = kind.version.fget
    assert found is not None
    monkeypatch.setattr(
        kind, "version", property(lambda self: "0.0" if self.name == changed else found(self))
    )
    forget_distributions()
    assert (fingerprint(reads_scipy) != before[0]) == for_scipy
    assert (fingerprint(len) != before[1]) == for_others


def install(site: Path, code: str, *, origin: str | None) -> None:
    """Install a package of one module as pip does, from an index or from somewhere else."""
    (site / "hepcache_test_installed.py").write_text(code)
    notes = site / "hepcache_test_installed-1.0.dist-info"
    notes.mkdir(parents=True, exist_ok=True)
    (notes / "METADATA").write_text("Name: hepcache-test-installed\nVersion: 1.0\n")
    digest = hashlib.sha256(code.encode()).hexdigest()
    own = f"hepcache_test_installed.py,sha256={digest},{len(code)}\n"
    (notes / "RECORD").write_text(own + f"{notes.name}/RECORD,,\n")
    if origin:
        (notes / "direct_url.json").write_text(json.dumps({"url": origin, "dir_info": {}}))


@pytest.mark.parametrize("origin", [None, "file:///home/user/package"])
def test_packages_that_no_index_has_count_by_content(
    origin: str | None,
    tmp_path: Path,
    forget_distributions: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is installed from a directory changes without its version; an index's doesn't."""
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    found = []
    for number in (1, 2):
        install(site, f"def f():\n    return {number}\n", origin=origin)
        forget_distributions()
        module = importlib.import_module("hepcache_test_installed")
        found.append(fingerprint(lambda used=module: used.f()))
        found.append(fingerprint(module.f))
        del sys.modules["hepcache_test_installed"]
    label = installed_packages.installed("hepcache_test_installed")
    assert label is not None
    assert label.startswith("hepcache-test-installed 1.0")
    assert (found[:2] != found[2:]) == bool(origin)


def test_a_module_in_the_way_of_an_installed_one_is_the_users(
    tmp_path: Path, forget_distributions: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("colorsys", "zict"):
        assert installed_packages.installed(name)
        (tmp_path / f"{name}.py").write_text("def f():\n    return 1\n")
        forget_distributions()
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, name, raising=False)
            patch.syspath_prepend(tmp_path)
            assert installed_packages.installed(name) is None
            assert fingerprint(importlib.import_module(name).f)
    assert installed_packages.installed("hepcache_bench") is None  # it is worked on
    assert installed_packages.installed("hepcache_test_nowhere") is None


def test_hepcache_counts_by_its_source() -> None:
    label = installed_packages.installed("hepcache.results")
    assert label is not None
    assert re.fullmatch(rf"hepcache {re.escape(hepcache.__version__)} [0-9a-f]{{32}}", label)


# Programs of parts, each of which has a number and reads others.
FORMS = {
    "function": "def {name}(x):\n    return {number} + x, [{reads}]\n",
    "inner": "def {name}(x):\n    def f():\n        return {number}, [{reads}]\n    return f\n",
    "generator": "def {name}(x):\n    yield {number}\n    yield [{reads}]\n",
    "lambda": "{name} = lambda x={number}: [{reads}]\n",
    "default": "def {name}(x, *, y=({number},)):\n    return [{reads}]\n",
    "class": "class {name}:\n    limit = {number}\n    def get(self):\n        return [{reads}]\n",
    "method": "class {name}:\n    def __get__(self, a, b):\n        return {number}, [{reads}]\n",
    "async": "async def {name}(x):\n    return [await y for y in [{reads}]], {number}\n",
    "set": "{name} = {{{number}, 'a', 'b'}}\n",
    "dictionary": "{name} = {{'a': [{number}]}}\n",
    "array": "{name} = __import__('numpy').array([{number}])\n",
}
READERS = [form for form, text in FORMS.items() if "{reads}" in text]


class Part(NamedTuple):
    form: str
    number: int
    reads: tuple[int, ...]


def text_of(parts: list[Part], order: list[int]) -> str:
    pieces = []
    for at in order:
        reads = ", ".join(f"part{other}" for other in parts[at].reads)
        form = FORMS[parts[at].form]
        pieces.append(form.format(name=f"part{at}", number=parts[at].number, reads=reads))
    return "\n".join(pieces) + "\ndef thing():\n    return part0\n"


def reached(parts: list[Part]) -> set[int]:
    found: set[int] = set()
    pending = [0]
    while pending:
        at = pending.pop()
        if at not in found:
            found.add(at)
            if parts[at].form in READERS:
                pending += parts[at].reads
    return found


def run_text(text: str, name: str) -> str:
    names: dict[str, object] = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec", dont_inherit=True), names)
    return fingerprint(names["thing"])


@st.composite
def programs(draw: st.DrawFn) -> list[Part]:
    count = draw(st.integers(1, 7))
    which = st.integers(0, count - 1)
    return [
        Part(
            draw(st.sampled_from(list(FORMS))),
            draw(st.integers(0, 10**6)),
            tuple(draw(st.lists(which, max_size=3))),
        )
        for _ in range(count)
    ]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_an_edit_changes_it_if_and_only_if_the_part_is_reached(data: st.DataObject) -> None:
    parts = data.draw(programs())
    order = list(range(len(parts)))
    before = run_text(text_of(parts, order), "before")
    # What does not count: order, layout, names of modules.
    shuffled = data.draw(st.permutations(order))
    text = text_of(parts, shuffled)
    if data.draw(st.booleans()):
        text = "# edited\n" + text.replace("\n    return", "\n\n    # why\n    return")
    assert run_text(text, "after") == before
    at = data.draw(st.sampled_from(order))
    edits = [parts[at]._replace(number=parts[at].number + 1)]
    if parts[at].form in READERS:
        edits.append(parts[at]._replace(reads=(*parts[at].reads, 0)))
        edits += [parts[at]._replace(reads=parts[at].reads[1:])] if parts[at].reads else []
    edited = list(parts)
    edited[at] = data.draw(st.sampled_from(edits))
    changed = run_text(text_of(edited, shuffled), "edited") != before
    assert changed == (at in reached(parts))
