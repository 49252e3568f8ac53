"""Which host gets which chunk: pure decisions, and the plugin that applies them."""

from hepcache.placement.policy import Placement, owners, place
from hepcache.placement.residency import Residency
from hepcache.placement.space import host_distances, torus_distance
from hepcache.placement.weights import distance_factors

__all__ = [
    "Placement",
    "Residency",
    "distance_factors",
    "host_distances",
    "owners",
    "place",
    "torus_distance",
]
