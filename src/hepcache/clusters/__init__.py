"""Clusters whose workers know their host and its cache."""

from hepcache.clusters.base import attach
from hepcache.clusters.local import LocalCluster

__all__ = ["LocalCluster", "attach"]
