"""Ingestion of files into an event store."""
