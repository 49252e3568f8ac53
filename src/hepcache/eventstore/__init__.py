"""Events and their products, addressed directly instead of through files.

``connect(url)`` opens a store. It follows the published model of HEPnOS: nested datasets,
runs, subruns and events by number, products by label and type.

Single items go through mappings::

    store = connect("file:///data/nova")
    event = store["nova/prod5"][43][56][25]
    event["rec_energy"] = np.array([1.5], "f4")

Many events at once go by column, which is what to use where speed matters::

    subrun = store["nova/prod5"][43][56]
    subrun.ingest("slice", events, {"nhit": nhit, "energy": energy}, offsets)
    for low, high, count in subrun.ranges(16384):
        table = subrun.read("slice", ["nhit"], low, high)
        table.events, table.array()  # uint64 numbers, and an awkward array of as many items
"""

from hepcache.eventstore.batch import Batch
from hepcache.eventstore.bulk import EventRange
from hepcache.eventstore.connect import connect
from hepcache.eventstore.containers import Dataset, Run
from hepcache.eventstore.ref import Address, Ref
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.stats import Statistics
from hepcache.eventstore.store import Store
from hepcache.eventstore.subrun import Event, SubRun
from hepcache.eventstore.table import Table

__all__ = [
    "Address",
    "Batch",
    "Dataset",
    "Event",
    "EventRange",
    "Ref",
    "Run",
    "Schema",
    "Statistics",
    "Store",
    "SubRun",
    "Table",
    "connect",
]
