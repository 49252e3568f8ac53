"""Events and their products, addressed directly instead of through files.

:func:`connect` opens a store. It follows the published model of HEPnOS: nested datasets,
runs, subruns and events by number, products by label and type.

Single items are read and written through mappings::

    store = connect("file:///data/nova")
    event = store["nova/prod5"][43][56][25]
    event["rec_energy"] = np.array([1.5], "f4")

If speed matters, read and write many events at once by column::

    subrun = store["nova/prod5"][43][56]
    subrun.ingest("slice", events, {"nhit": nhit, "energy": energy}, offsets)
    for low, high, count in subrun.ranges(16384):
        table = subrun.read("slice", ["nhit"], low, high)
        table.events, table.array()  # uint64 numbers, and an awkward array of as many items

:func:`ingest` fills a dataset from files; :meth:`Store.process` calls a function on all of its
events in parallel; :func:`serve` runs a store on the workers of a Dask cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset, Datasets, Event, EventRange, Run, SubRun
from hepcache.eventstore.keys import Address, DatasetUrl, Ref
from hepcache.eventstore.processing.batch import EventBatch, LoadedEvent
from hepcache.eventstore.processing.loader import StoreLoader
from hepcache.eventstore.processing.processor import Processed, process
from hepcache.eventstore.processing.queue import Loader, Range
from hepcache.eventstore.products import Products
from hepcache.eventstore.queues import Queue, Queues
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.sharded_store import Batch, Statistics
from hepcache.eventstore.store import Store
from hepcache.eventstore.table import Table

if TYPE_CHECKING:
    from hepcache.eventstore.backup import Backup, back_up, restore
    from hepcache.eventstore.ingestion.classes import ClassDescription, FileClasses, FileFormat
    from hepcache.eventstore.ingestion.hdf5 import HDF5_TABLES
    from hepcache.eventstore.ingestion.ingest import Ingested, file_format, ingest
    from hepcache.eventstore.ingestion.root import NANOAOD
    from hepcache.eventstore.service.client import connect_service, drain, serve, shutdown

__all__ = [
    "HDF5_TABLES",
    "NANOAOD",
    "Address",
    "Backup",
    "Batch",
    "ClassDescription",
    "Dataset",
    "DatasetUrl",
    "Datasets",
    "Event",
    "EventBatch",
    "EventRange",
    "FileClasses",
    "FileFormat",
    "Ingested",
    "LoadedEvent",
    "Loader",
    "Processed",
    "Products",
    "Queue",
    "Queues",
    "Range",
    "Ref",
    "Run",
    "Schema",
    "Statistics",
    "Store",
    "StoreLoader",
    "SubRun",
    "Table",
    "back_up",
    "connect",
    "connect_service",
    "drain",
    "file_format",
    "ingest",
    "process",
    "restore",
    "serve",
    "shutdown",
]

# Imported at first use, because distributed and uproot take long to import.
_HOMES = {
    "HDF5_TABLES": "ingestion.hdf5",
    "NANOAOD": "ingestion.root",
    "Backup": "backup",
    "ClassDescription": "ingestion.classes",
    "FileClasses": "ingestion.classes",
    "FileFormat": "ingestion.classes",
    "Ingested": "ingestion.ingest",
    "back_up": "backup",
    "connect_service": "service.client",
    "drain": "service.client",
    "file_format": "ingestion.ingest",
    "ingest": "ingestion.ingest",
    "restore": "backup",
    "serve": "service.client",
    "shutdown": "service.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hepcache.eventstore' has no attribute {name!r}")
    value = getattr(import_module(f"hepcache.eventstore.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
