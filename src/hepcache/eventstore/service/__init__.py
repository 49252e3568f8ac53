"""The event store on the workers of a Dask cluster."""
