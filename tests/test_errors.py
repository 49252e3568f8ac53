from __future__ import annotations

import inspect
import pickle

import pytest

from hepcache import errors

CLASSES = [
    one
    for _, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, errors.HepcacheError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_survive_the_way_between_processes(kind: type[errors.HepcacheError]) -> None:
    inits = (
        vars(base).get("__init__") for base in kind.__mro__ if base.__module__ == errors.__name__
    )
    own = next(filter(None, inits), None)
    parameters = list(inspect.signature(own).parameters.values())[1:] if own else []
    special = {
        "problems": {"a.root": "gone"},
        "failures": {"a.root": "gone"},
        "datasets": {"a.root": ("dy",)},
        "kind": FileNotFoundError,
    }
    values = [special.get(one.name, f"the {one.name}") for one in parameters]
    error = kind(*(values or ["what went wrong"]))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert isinstance(again, kind)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_error_is_also_a_builtin_and_public() -> None:
    for kind in CLASSES:
        assert kind.__name__ in errors.__all__
        # coffea raises a bare Exception where a processor fails: what caused it has a type.
        plain = (errors.HepcacheError, errors.ProcessorError, errors.ChunkError)
        kind = type(kind({"a.root": "gone"})) if kind is errors.BadFileError else kind
        if kind not in plain:
            builtins = [base for base in kind.__mro__[1:] if base.__module__ == "builtins"]
            assert builtins[0] not in (Exception, BaseException, object), kind
