"""The parallel event processor: readers load ahead, workers take small batches."""
