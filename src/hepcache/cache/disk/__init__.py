"""Bytes on the volume: where they lie, what they mean, how they are written and locked."""
