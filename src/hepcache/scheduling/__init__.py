"""Everything that touches Dask's scheduler: plugin, queues, rebalancing, stealing."""
