"""Columns, from the cache or else from their source."""
