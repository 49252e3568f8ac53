"""Filesets, and the catalogue of files that are known."""
