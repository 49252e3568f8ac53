"""Merging of partial results."""

from hepcache.merge.tree import MergeTree

__all__ = ["MergeTree"]
