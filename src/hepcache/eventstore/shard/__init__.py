"""One shard of an event store: its layout, checksums and operations."""
