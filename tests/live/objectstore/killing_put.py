"""Puts a file, and is killed when so many objects are there: ``URI FILE OBJECTS``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from threading import Lock
from typing import Any

from hepcache.objectstore import open_store
from hepcache.rntuple import WriteOptions, put_files


class KillingStore:
    """A store whose process is killed when it has put so many objects."""

    def __init__(self, store: Any, objects: int) -> None:
        self._store, self._left = store, objects
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, name: str, data: Any) -> None:
        """Put an object, and kill the process if it is the last one."""
        self._store.put(name, data)
        with self._lock:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Put the file as the command does."""
    uri, file, objects = arguments
    store: Any = KillingStore(open_store(uri), int(objects))
    put_files(store, [file], options=WriteOptions(puts=2), check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
