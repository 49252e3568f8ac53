"""Ordered key-value engines below an event store."""
