"""The calls of libdaos that are used here, by ctypes; structures as in DAOS 2.

DAOS needs its own servers and network, which few machines have: what is here
was tested against a stand-in for these calls (tests/objectstore/libdaos.c).
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_char_p,
    c_int,
    c_size_t,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from ctypes.util import find_library
from functools import cache
from typing import Any

__all__ = ["Extent", "IoDescriptor", "IoVector", "KeyDescriptor", "ObjectId", "Sgl", "library"]


class ObjectId(ctypes.Structure):
    """daos_obj_id_t: the upper half of ``hi`` is DAOS's own."""

    _fields_ = (("lo", c_uint64), ("hi", c_uint64))


class IoVector(ctypes.Structure):
    """d_iov_t: memory, the room in it, and the part in use; also a key."""

    _fields_ = (("buffer", c_void_p), ("room", c_size_t), ("length", c_size_t))


class Sgl(ctypes.Structure):
    """d_sg_list_t: where the bytes of one descriptor go or come from."""

    _fields_ = (("count", c_uint32), ("count_out", c_uint32), ("vectors", POINTER(IoVector)))


class Extent(ctypes.Structure):
    """daos_recx_t: consecutive records of an array; ours are bytes."""

    _fields_ = (("start", c_uint64), ("count", c_uint64))


class IoDescriptor(ctypes.Structure):
    """daos_iod_t: what of one attribute key is read or written."""

    _fields_ = (
        ("name", IoVector),
        ("kind", c_int),
        ("size", c_uint64),
        ("flags", c_uint64),
        ("count", c_uint),
        ("extents", POINTER(Extent)),
    )


class KeyDescriptor(ctypes.Structure):
    """daos_key_desc_t: the length of one key of a listing."""

    _fields_ = (("length", c_uint64), ("kind", c_uint32))


_HANDLE = c_uint64  # daos_handle_t is a structure of this alone
_CALLS: dict[str, list[Any]] = {
    "daos_init": [],
    "daos_pool_connect": [
        c_char_p, c_char_p, c_uint, POINTER(_HANDLE), c_void_p, c_void_p
    ],
    "daos_pool_disconnect": [_HANDLE, c_void_p],
    "daos_cont_create_with_label": [_HANDLE, c_char_p, c_void_p, c_void_p, c_void_p],
    "daos_cont_open": [_HANDLE, c_char_p, c_uint, POINTER(_HANDLE), c_void_p, c_void_p],
    "daos_cont_close": [_HANDLE, c_void_p],
    "daos_oclass_name2id": [c_char_p],
    "daos_obj_generate_oid": [
        _HANDLE, POINTER(ObjectId), c_int, c_uint32, c_uint16, c_uint32
    ],
    "daos_obj_open": [_HANDLE, ObjectId, c_uint, POINTER(_HANDLE), c_void_p],
    "daos_obj_close": [_HANDLE, c_void_p],
    "daos_obj_fetch": [
        _HANDLE, _HANDLE, c_uint64, POINTER(IoVector), c_uint, POINTER(IoDescriptor),
        POINTER(Sgl), c_void_p, c_void_p,
    ],
    "daos_obj_update": [
        _HANDLE, _HANDLE, c_uint64, POINTER(IoVector), c_uint, POINTER(IoDescriptor),
        POINTER(Sgl), c_void_p,
    ],
    "daos_obj_punch_dkeys": [
        _HANDLE, _HANDLE, c_uint64, c_uint, POINTER(IoVector), c_void_p
    ],
    "daos_obj_punch_akeys": [
        _HANDLE, _HANDLE, c_uint64, POINTER(IoVector), c_uint, POINTER(IoVector), c_void_p
    ],
    "daos_obj_list_akey": [
        _HANDLE, _HANDLE, POINTER(IoVector), POINTER(c_uint32), POINTER(KeyDescriptor),
        POINTER(Sgl), c_void_p, c_void_p,
    ],
    "daos_obj_list_dkey": [
        _HANDLE, _HANDLE, POINTER(c_uint32), POINTER(KeyDescriptor), POINTER(Sgl), c_void_p,
        c_void_p,
    ],
}  # fmt: skip


class Library:
    """The calls by name, ready to use; DAOS's client is started."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        for name, arguments in _CALLS.items():
            # DAOS 2 exports today's interface of these under a second name.
            newer = f"{name}2" if name in ("daos_pool_connect", "daos_cont_open") else name
            call = getattr(loaded, newer, None) or getattr(loaded, name)
            call.argtypes, call.restype = arguments, c_int
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@cache
def library() -> Library:
    """Load libdaos, and start its client once for the process.

    ``HEPCACHE_LIBDAOS`` names another library than the system's.

    Raises
    ------
    ImportError
        It is not installed.
    OSError
        Its client does not start: mostly there is no daos_agent.
    """
    path = os.environ.get("HEPCACHE_LIBDAOS") or find_library("daos") or "libdaos.so.2"
    try:
        found = Library(ctypes.CDLL(path))
    except OSError as error:
        raise ImportError(
            f"objects in DAOS need libdaos, part of DAOS's client packages ({error})"
        ) from error
    if value := found.daos_init():
        raise OSError(f"libdaos does not start (DER {value}): is daos_agent running?")
    return found
