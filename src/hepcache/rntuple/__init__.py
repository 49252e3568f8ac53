"""Read, write and copy RNTuples in object stores and in ROOT files.

A store is named by its URI, or is an open :class:`~hepcache.objectstore.Store`::

    put_files("rados://hep/zee", ["run1.root", "run2.root"])
    with open_ntuple("rados://hep/zee") as ntuple:
        ntuple.arrays(["met"])
    get_file("rados://hep/zee", "back.root")
"""

from __future__ import annotations

from hepcache.rntuple.maintenance import NTupleInfo, Verdict, describe, remove, verify
from hepcache.rntuple.naming import BELOW, BESIDE
from hepcache.rntuple.ntuple import NTuple, open_in_file, open_ntuple
from hepcache.rntuple.read import ReadOptions
from hepcache.rntuple.root_on_daos import ntuple_store
from hepcache.rntuple.transfer import Put, get_file, put_files
from hepcache.rntuple.write import MAPPINGS, Sink, WriteOptions, write_array, write_tree

__all__ = [
    "BELOW",
    "BESIDE",
    "MAPPINGS",
    "NTuple",
    "NTupleInfo",
    "Put",
    "ReadOptions",
    "Sink",
    "Verdict",
    "WriteOptions",
    "describe",
    "get_file",
    "ntuple_store",
    "open_in_file",
    "open_ntuple",
    "put_files",
    "remove",
    "verify",
    "write_array",
    "write_tree",
]
