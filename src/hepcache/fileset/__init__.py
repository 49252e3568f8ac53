"""Filesets: what a user names, as coffea does."""

from hepcache.fileset.load import load_fileset
from hepcache.fileset.model import FileRecord, Fileset, FileSpec

__all__ = ["FileRecord", "FileSpec", "Fileset", "load_fileset"]
