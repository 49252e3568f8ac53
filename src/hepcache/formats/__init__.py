"""One registry of formats: what a path names, whether it changed, and what reads its columns."""
