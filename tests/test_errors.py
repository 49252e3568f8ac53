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
    mappings = ("problems", "failures")
    values = [{"a.root": "gone"} if p.name in mappings else f"the {p.name}" for p in parameters]
    error = kind(*(values or ["what went wrong"]))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_error_is_also_a_builtin_and_public() -> None:
    for kind in CLASSES:
        assert kind.__name__ in errors.__all__
        if kind is not errors.HepcacheError:
            builtins = [base for base in kind.__mro__[1:] if base.__module__ == "builtins"]
            assert builtins[0] not in (Exception, BaseException, object), kind
