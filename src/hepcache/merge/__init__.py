"""Merging of partial results."""
