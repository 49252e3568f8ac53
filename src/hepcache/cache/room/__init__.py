"""Room on the volume: limits, what is used by whom, and what a byte is worth."""
