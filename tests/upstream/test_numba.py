from __future__ import annotations

import pickle

import numba

from hepcache.upstream.numba import compiles_more, dispatcher_of


def test_compiles_more() -> None:
    assert compiles_more(numba.njit(lambda x: x + 1))
    assert not compiles_more(numba.njit("f8(f8)")(lambda x: x + 1))


def test_dispatcher_of() -> None:
    ufuncs = [numba.vectorize(lambda x: x + 1), numba.guvectorize("(n)->()")(lambda x, out: None)]
    for ufunc in (*ufuncs, pickle.loads(pickle.dumps(ufuncs[0]))):
        assert dispatcher_of(ufunc).py_func.__name__ == "<lambda>"
        assert dispatcher_of(ufunc).targetoptions["nopython"]
