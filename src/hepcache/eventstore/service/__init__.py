"""The event store on the workers of a Dask cluster."""

from hepcache.eventstore.service.client import connect_service, drain, serve, shutdown

__all__ = ["connect_service", "drain", "serve", "shutdown"]
