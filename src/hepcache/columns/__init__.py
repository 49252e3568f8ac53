"""Columns, from the cache or else from their source."""

from hepcache.columns.column import Column, Counted, Flat, Nested
from hepcache.columns.names import columns_of, expand
from hepcache.columns.opening import column_names, forget_sources, open_source
from hepcache.columns.reader import Reader
from hepcache.columns.source import Source, TreeRef
from hepcache.columns.uproot_source import UprootSource

__all__ = [
    "Column",
    "Counted",
    "Flat",
    "Nested",
    "Reader",
    "Source",
    "TreeRef",
    "UprootSource",
    "column_names",
    "columns_of",
    "expand",
    "forget_sources",
    "open_source",
]
