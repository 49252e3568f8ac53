"""Segments and chunks: where files are cut. Pure."""
