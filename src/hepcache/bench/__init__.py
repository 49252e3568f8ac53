"""Samples, and benchmarks that print a peer beside us."""
