"""Which host gets which chunk: pure decisions of jobs, hosts and what hosts hold."""

from hepcache.placement.policy import Placement, owners, place
from hepcache.placement.residency import Residency
from hepcache.placement.shares import distance_factors

__all__ = ["Placement", "Residency", "distance_factors", "owners", "place"]
