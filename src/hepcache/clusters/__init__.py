"""Clusters whose workers know their host and its cache."""
