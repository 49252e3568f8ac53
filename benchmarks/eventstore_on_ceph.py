"""What Ceph makes of the event store's data, against LMDB on the same machine.

A subrun is one object of RADOS: its events are ordered keys in omap, its column values the
object's data. One atomic operation writes both, several of them at a time. LMDB gets the same in
one transaction per subrun, synchronously as the store writes by default. This starts a monitor and
an OSD on this machine (``apt-get install ceph-mon ceph-osd ceph-common librados2``).
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import lmdb
import numpy as np

from hepcache.objectstore import Request
from hepcache.objectstore.rados import RadosStore
from hepcache_bench.object_servers import Ceph, missing_for_ceph

SUBRUNS, EVENTS, COLUMNS, POINTS, ROUNDS, AT_ONCE = 40, 2500, 8, 1000, 5, 8
KEY_BYTES = VALUE_BYTES = 16
_ARRAYS = (POINTER(c_char_p), POINTER(c_char_p), POINTER(c_size_t), POINTER(c_size_t))


class Rates(NamedTuple):
    """Seconds to write and to read everything, and for one event that is looked up."""

    write_s: float
    scan_s: float
    look_up_s: float


class Sample:
    """Events and columns of every subrun."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.keys = [
            [b"%08d%08d" % (subrun, event) for event in range(EVENTS)] for subrun in range(SUBRUNS)
        ]
        self.values = [random.bytes(VALUE_BYTES) for _ in range(EVENTS)]
        self.columns = random.normal(size=(COLUMNS, EVENTS * 4)).astype("f4")
        picked = random.permutation(SUBRUNS * EVENTS)[:POINTS].tolist()
        self.points = [divmod(event, EVENTS) for event in picked]

    @property
    def nbytes(self) -> int:
        """Bytes of keys, values and columns."""
        return SUBRUNS * (EVENTS * (KEY_BYTES + VALUE_BYTES) + self.columns.nbytes)


def timed(call: Callable[[], int], expected: int) -> float:
    """Return the seconds that a call takes; what it counts must be right."""
    begin = time.perf_counter()
    found = call()
    took_s = time.perf_counter() - begin
    if found != expected:
        raise RuntimeError(f"{found} were found, not {expected}")
    return took_s


class OnLmdb:
    """Ordered keys in one database, columns in another."""

    def __init__(self, sample: Sample, directory: Path) -> None:
        self._sample = sample
        self._environment = lmdb.open(str(directory), map_size=1 << 34, max_dbs=2, meminit=False)
        self._events = self._environment.open_db(b"events")
        self._columns = self._environment.open_db(b"columns")

    def write(self) -> int:
        """Write all subruns, one transaction each."""
        sample = self._sample
        for subrun, keys in enumerate(sample.keys):
            with self._environment.begin(write=True) as transaction:
                pairs = zip(keys, sample.values, strict=True)
                transaction.cursor(self._events).putmulti(pairs)
                for number, column in enumerate(sample.columns):
                    name = subrun.to_bytes(4, "big") + number.to_bytes(4, "big")
                    transaction.put(name, column.tobytes(), db=self._columns)
        return SUBRUNS

    def scan(self) -> int:
        """Read all keys and values, and copy all columns; return the number of events."""
        with self._environment.begin() as transaction:
            count = sum(1 for _ in transaction.cursor(self._events))
            for _, column in transaction.cursor(self._columns):
                np.frombuffer(column, "f4")
        return count

    def look_up(self) -> int:
        """Look events up, one transaction each; return how many were there."""
        found = 0
        for subrun, event in self._sample.points:
            with self._environment.begin() as transaction:
                found += (
                    transaction.get(self._sample.keys[subrun][event], db=self._events) is not None
                )
        return found


class OnCeph:
    """One object per subrun."""

    def __init__(self, sample: Sample, ceph: Ceph) -> None:
        self._sample = sample
        self._store = RadosStore(ceph.uri("b"), urlsplit("rados://hep/b"), conf=str(ceph.conf))
        self._io: c_void_p = self._store._io  # noqa: SLF001 - the bindings of the object store
        self._rados: Any = self._store._rados  # noqa: SLF001
        for name, arguments in {
            "rados_write_op_omap_set2": [c_void_p, *_ARRAYS, c_size_t],
            "rados_write_op_write_full": [c_void_p, c_void_p, c_size_t],
            "rados_read_op_omap_get_vals2": [
                c_void_p, c_char_p, c_char_p, c_uint64, c_void_p, c_void_p, c_void_p,
            ],
            "rados_read_op_omap_get_vals_by_keys2": [
                c_void_p, POINTER(c_char_p), c_size_t, POINTER(c_size_t), c_void_p, c_void_p,
            ],
            "rados_release_read_op": [c_void_p],
            "rados_omap_get_end": [c_void_p],
        }.items():  # fmt: skip
            getattr(self._rados, name).argtypes = arguments
            getattr(self._rados, name).restype = None
        self._rados.rados_create_read_op.restype = c_void_p
        self._rados.rados_read_op_operate.argtypes = [c_void_p, c_void_p, c_char_p, c_int]
        self._rados.rados_aio_write_op_operate.argtypes = [
            c_void_p, c_void_p, c_void_p, c_char_p, c_void_p, c_int,
        ]  # fmt: skip
        self._rados.rados_omap_iter_size.argtypes = [c_void_p]
        self._rados.rados_omap_iter_size.restype = c_uint
        self._data = np.ascontiguousarray(sample.columns)

    def write(self) -> int:
        """Write all subruns, one operation each, several at a time."""
        array, sizes = c_char_p * EVENTS, (c_size_t * EVENTS)(*[KEY_BYTES] * EVENTS)
        values = array(*self._sample.values)
        under_way: deque[tuple[c_void_p, c_void_p, Any]] = deque()
        for subrun, keys in enumerate(self._sample.keys):
            if len(under_way) == AT_ONCE:
                self._wait(*under_way.popleft())
            names = array(*keys)
            operation = c_void_p(self._rados.rados_create_write_op())
            self._rados.rados_write_op_omap_set2(operation, names, values, sizes, sizes, EVENTS)
            address = self._data.ctypes.data
            self._rados.rados_write_op_write_full(operation, address, self._data.nbytes)
            handle = c_void_p()
            self._rados.rados_aio_create_completion2(None, None, byref(handle))
            self._rados.rados_aio_write_op_operate(
                operation, self._io, handle, self._key(subrun), None, 0
            )
            under_way.append((operation, handle, names))
        while under_way:
            self._wait(*under_way.popleft())
        return SUBRUNS

    def _wait(self, operation: c_void_p, handle: c_void_p, _names: Any) -> None:
        self._rados.rados_aio_wait_for_complete(handle)
        value = self._rados.rados_aio_get_return_value(handle)
        self._rados.rados_aio_release(handle)
        self._rados.rados_release_write_op(operation)
        if value < 0:
            raise OSError(-value, "an operation failed")

    def _key(self, subrun: int) -> bytes:
        return b"b/%d" % subrun

    def scan(self) -> int:
        """Read all keys and values, as many at once as an OSD gives, and all columns."""
        requests = [Request(str(n), 0, self._data.nbytes) for n in range(SUBRUNS)]
        pending = self._store.begin(requests)
        count = 0
        for subrun, keys in enumerate(self._sample.keys):
            there = 0
            while there < EVENTS:
                there += self._events_after(subrun, keys[there - 1] if there else b"")
            count += there
        pending.result()
        return count

    def _events_after(self, subrun: int, after: bytes) -> int:
        """Ask for events behind a key; return how many came, which nobody unpacks here."""
        iterator, more, answer = c_void_p(), c_ubyte(), c_int()
        operation = c_void_p(self._rados.rados_create_read_op())
        self._rados.rados_read_op_omap_get_vals2(
            operation,
            after,
            b"",
            EVENTS,
            ctypes.addressof(iterator),
            ctypes.addressof(more),
            ctypes.addressof(answer),
        )
        self._operate(operation, subrun, answer)
        count = int(self._rados.rados_omap_iter_size(iterator))
        self._rados.rados_omap_get_end(iterator)
        if not count:
            raise RuntimeError(f"subrun {subrun} ends behind {after!r}")
        return count

    def _operate(self, operation: c_void_p, subrun: int, answer: c_int) -> None:
        value = self._rados.rados_read_op_operate(operation, self._io, self._key(subrun), 0)
        self._rados.rados_release_read_op(operation)
        if value < 0 or answer.value < 0:
            raise OSError(-min(value, answer.value), "an operation failed")

    def look_up(self) -> int:
        """Look events up; return how many were there."""
        found = 0
        for subrun, event in self._sample.points:
            iterator, answer = c_void_p(), c_int()
            key = (c_char_p * 1)(self._sample.keys[subrun][event])
            operation = c_void_p(self._rados.rados_create_read_op())
            self._rados.rados_read_op_omap_get_vals_by_keys2(
                operation, key, 1, (c_size_t * 1)(KEY_BYTES), ctypes.addressof(iterator),
                ctypes.addressof(answer),
            )  # fmt: skip
            self._operate(operation, subrun, answer)
            found += self._rados.rados_omap_iter_size(iterator)
            self._rados.rados_omap_get_end(iterator)
        return found


def measure(peer: OnLmdb | OnCeph) -> Rates:
    """Return what one of the two takes."""
    return Rates(
        timed(peer.write, SUBRUNS),
        timed(peer.scan, SUBRUNS * EVENTS),
        timed(peer.look_up, POINTS) / POINTS,
    )


def main() -> None:
    """Print rates of both, and those of Ceph over LMDB's: medians of interleaved rounds."""
    if missing := missing_for_ceph():
        sys.exit(missing)
    sample = Sample()
    taken: dict[str, list[Rates]] = {"LMDB": [], "Ceph": []}
    with tempfile.TemporaryDirectory(prefix="omap") as home:
        (Path(home) / "ceph").mkdir()
        ceph = Ceph(Path(home) / "ceph")
        try:
            on_ceph = OnCeph(sample, ceph)
            on_ceph.write()  # placement groups are made now
            for number in range(ROUNDS):
                (Path(home) / str(number)).mkdir()
                taken["LMDB"].append(measure(OnLmdb(sample, Path(home) / str(number))))
                taken["Ceph"].append(measure(on_ceph))
        finally:
            ceph.close()
    middle = {
        name: Rates(*map(statistics.median, zip(*rates, strict=True)))
        for name, rates in taken.items()
    }
    for name, rates in middle.items():
        print(
            f"{name}: write {sample.nbytes / rates.write_s / 1e6:.0f} MB/s, "
            f"read {sample.nbytes / rates.scan_s / 1e6:.0f} MB/s, "
            f"one event {rates.look_up_s * 1e6:.1f} us"
        )
    lmdb_rates, ceph_rates = middle["LMDB"], middle["Ceph"]
    for what, ours, theirs in zip(Rates._fields, lmdb_rates, ceph_rates, strict=True):
        print(f"Ceph over LMDB, {what.removesuffix('_s')}: {ours / theirs:.3f}")


if __name__ == "__main__":
    main()
