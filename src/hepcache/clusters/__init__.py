"""Clusters whose workers know their host and its cache."""

from hepcache.clusters.attach import attach
from hepcache.clusters.local import LocalCluster

__all__ = ["LocalCluster", "attach"]
