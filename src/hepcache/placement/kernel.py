"""Nearest hosts of many jobs, compiled.

In eight-bit arithmetic subtraction wraps around as the torus does, and the
absolute value, read without a sign, is the distance along one coordinate:
``min(x, 256 - x)``, 128 included. Multiplied by its own negative, which
includes -128 too, it gives minus the square; two of them just fit in 16 bits.
All this is said in vectors of 32 bytes that any machine can follow; on x86
the multiplication and the sum are one instruction. The sum over all
coordinates does not fit in 16 bits: it is kept twice, once modulo 65536 and
once divided by 256 and rounded down, and both give it back exactly.

This module imports numba, which takes a second, and the first call on a
machine compiles for some seconds more (the result is kept on disk); small
batches are better served by numpy, see :mod:`hepcache.placement.space`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["BLOCK_HOSTS", "blocks_of", "nearest"]

_SALTS = 8
_DIMENSIONS = 64
BLOCK_HOSTS = 16
"""Hosts whose points of one salt are handled at once: they fill the lanes."""

_LANES = BLOCK_HOSTS

_TOGETHER = 4  # salts whose sums stay in eight registers
_BLOCK = BLOCK_HOSTS * _TOGETHER
_FARTHEST = _DIMENSIONS * 128**2
_BATCH = 1024  # jobs that stay in the second-level cache while all hosts pass by

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_BYTES = ir.VectorType(_I8, 2 * _LANES)
_V16, _V32 = ir.VectorType(_I16, _LANES), ir.VectorType(_I32, _LANES)


def _all(kind: ir.VectorType, value: int) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _lanes(builder: ir.IRBuilder, vector: Any, lanes: Sequence[int]) -> Any:
    chosen = ir.Constant(ir.VectorType(_I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def _function(builder: ir.IRBuilder, name: str, *types_: Any) -> Any:
    signature = ir.FunctionType(types_[0], types_[1:])
    return cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}")


def _minus_squares(builder: ir.IRBuilder, coordinates: Any, points: Any) -> Any:
    """Return minus the sum of the squares along two coordinates, for each of 16 points."""
    absolute = _function(builder, "abs.v32i8", _BYTES, _BYTES, ir.IntType(1))
    apart = builder.sub(coordinates, points)
    apart = builder.call(absolute, [apart, ir.Constant(ir.IntType(1), 0)])
    minus = builder.sub(_all(_BYTES, 0), apart)
    first, second = (
        builder.mul(
            builder.zext(_lanes(builder, apart, lanes), _V32),
            builder.sext(_lanes(builder, minus, lanes), _V32),
        )
        for lanes in (range(0, 2 * _LANES, 2), range(1, 2 * _LANES, 2))
    )
    # Nothing is out of these bounds; said so, the compiler finds x86's instruction for it.
    total = builder.add(first, second)
    for name, bound in (("smax", -(2**15)), ("smin", 2**15 - 1)):
        clamp = _function(builder, f"{name}.v16i32", _V32, _V32, _V32)
        total = builder.call(clamp, [total, _all(_V32, bound)])
    return builder.trunc(total, _V16)


@intrinsic
def _at(_: Any, array: Any, offset: Any) -> Any:  # noqa: ARG001
    """Return a pointer into a contiguous array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0])
        return builder.gep(view.data, [args[1]])

    return types.CPointer(array.dtype)(array, types.intp), generate


@intrinsic
def _squares(_: Any, job: Any, points: Any, out: Any) -> Any:  # noqa: ARG001
    """Lower a job's squared distances to hosts to those of their points of four salts."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        low, high = ([_all(_V16, 0)] * _TOGETHER for _ in range(2))
        for pair in range(_DIMENSIONS // 2):
            both = builder.load(builder.gep(args[0], [ir.Constant(_I64, pair)]))
            one = builder.insert_element(
                ir.Constant(_V16, ir.Undefined), both, ir.Constant(_I32, 0)
            )
            spread = builder.bitcast(_lanes(builder, one, [0] * _LANES), _BYTES)
            for salt in range(_TOGETHER):
                offset = ir.Constant(_I64, (pair * _BLOCK + salt * _LANES) * 2)
                address = builder.bitcast(builder.gep(args[1], [offset]), _BYTES.as_pointer())
                found = _minus_squares(builder, spread, builder.load(address, align=1))
                low[salt] = builder.add(low[salt], found)
                high[salt] = builder.add(high[salt], builder.ashr(found, _all(_V16, 8)))
        address = builder.bitcast(args[2], _V32.as_pointer())
        most = builder.sub(_all(_V32, 0), builder.load(address, align=4))
        clamp = _function(builder, "smax.v16i32", _V32, _V32, _V32)
        for modulo, rounded in zip(low, high, strict=True):
            rest = builder.sub(modulo, builder.shl(rounded, _all(_V16, 8)))
            minus = builder.add(
                builder.shl(builder.sext(rounded, _V32), _all(_V32, 8)), builder.zext(rest, _V32)
            )
            most = builder.call(clamp, [most, minus])
        builder.store(builder.sub(_all(_V32, 0), most), address, align=4)
        return context.get_dummy_value()

    signature = types.void(
        types.CPointer(types.uint16), types.CPointer(types.uint8), types.CPointer(types.int32)
    )
    return signature, generate


def blocks_of(points: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return hosts' points as :func:`nearest` wants them.

    Parameters
    ----------
    points
        Shape ``(n_hosts, 8, 64)``.

    Returns
    -------
    numpy.ndarray
        Shape ``(n_blocks, 2, 32, 4, 16, 2)``: block of hosts, half of the
        salts, pair of dimensions, salt, host, dimension of the pair.
    """
    missing = -len(points) % BLOCK_HOSTS
    filled = np.concatenate([points, np.repeat(points[-1:], missing, axis=0)])
    blocks = filled.reshape(-1, BLOCK_HOSTS, _SALTS // _TOGETHER, _TOGETHER, _DIMENSIONS // 2, 2)
    return np.ascontiguousarray(blocks.transpose(0, 2, 4, 3, 1, 5))


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    try:
        compiled: Callable[..., None] = njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # Neither this directory nor the user's own can be written: compile every time.
        compiled = njit(nogil=True)(function)
    return compiled


@_compiled
def nearest(
    jobs: NDArray[np.uint16],
    blocks: NDArray[np.uint8],
    squared_factors: NDArray[np.float64],
    found: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> None:
    """Find the nearest hosts of jobs.

    Parameters
    ----------
    jobs
        Points, two coordinates to a number, shape ``(n_jobs, 32)``, contiguous.
    blocks
        Of :func:`blocks_of`.
    squared_factors
        Square of every host's distance factor, shape ``(n_hosts,)``.
    found, scores
        Filled with the nearest hosts, nearest first, and their squared
        weighted distances; shape ``(n_jobs, n_nearest)``. Of two at one
        distance the one of lower index comes first.
    """
    n_hosts, keep = len(squared_factors), found.shape[1]
    squares = np.empty(BLOCK_HOSTS, np.int32)
    for begin in range(0, len(jobs), _BATCH):
        batch = min(_BATCH, len(jobs) - begin)
        scores[begin : begin + batch] = np.inf
        found[begin : begin + batch] = -1
        for block in range(len(blocks)):
            first = block * BLOCK_HOSTS
            here = min(BLOCK_HOSTS, n_hosts - first)
            for row in range(batch):
                job = _at(jobs, (begin + row) * (_DIMENSIONS // 2))
                squares[:] = _FARTHEST
                for half in range(_SALTS // _TOGETHER):
                    points = (block * (_SALTS // _TOGETHER) + half) * _DIMENSIONS * _BLOCK
                    _squares(job, _at(blocks, points), _at(squares, 0))
                best = scores[begin + row]
                for host in range(here):
                    score = squares[host] * squared_factors[first + host]
                    if score < best[keep - 1]:
                        place = keep - 1
                        while place > 0 and score < best[place - 1]:
                            best[place] = best[place - 1]
                            found[begin + row, place] = found[begin + row, place - 1]
                            place -= 1
                        best[place] = score
                        found[begin + row, place] = first + host
