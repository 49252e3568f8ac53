"""Segments and chunks: where files are cut. Pure."""

from hepcache.chunks.cut import cut
from hepcache.chunks.segments import overlapping, segment_boundaries, segment_of

__all__ = ["cut", "overlapping", "segment_boundaries", "segment_of"]
