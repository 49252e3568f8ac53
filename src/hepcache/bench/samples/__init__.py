"""Samples for the demo, the benchmarks and the tests."""
