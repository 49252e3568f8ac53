"""Filesets, and the catalogue of files that are known."""

from hepcache.fileset.freshness import Freshness, look
from hepcache.fileset.load import load_fileset
from hepcache.fileset.model import FileRecord, Fileset, FileSpec
from hepcache.fileset.store import Catalogue

__all__ = [
    "Catalogue",
    "FileRecord",
    "FileSpec",
    "Fileset",
    "Freshness",
    "load_fileset",
    "look",
]
