"""Inputs in the order of what is in them."""

from __future__ import annotations

from hepcache.errors import TableFileError, TableMismatchError
from hepcache.hdf5.gather import Inputs
from hepcache.hdf5.keywork import read_values
from hepcache.hdf5.model import text
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.rows import RowReader

__all__ = ["sorted_inputs"]


def sorted_inputs(inputs: Inputs, options: TableOptions) -> Inputs:
    """Return inputs in the order of the first values of datasets of their events.

    Files without events come last; equal ones keep their order.

    Parameters
    ----------
    inputs
        The files.
    options
        ``sort`` names the datasets, such as ``("run", "subrun")``; none leaves
        the order as it is.

    Raises
    ------
    TableMismatchError
        There is no such dataset.
    """
    if not options.sort:
        return inputs
    paths = inputs.schema.by_path()
    wanted = [f"{options.events.strip('/')}/{name}".encode() for name in options.sort]
    missing = {text(path): "is not there to sort by" for path in wanted if path not in paths}
    if missing:
        raise TableMismatchError(missing)

    def first_values(file: int) -> tuple[bool, list[int]]:
        found = []
        for path in wanted:
            place = inputs.place(file, paths[path])
            if not place.length:
                return True, []
            reader = RowReader(inputs.source(file))
            try:
                found.append(int(read_values(reader, place._replace(length=1))[0]))
            except IndexError as error:
                raise TableFileError(inputs.tables[file].path, "has no value") from error
            finally:
                reader.close()
        return False, found

    return inputs.ordered(sorted(range(len(inputs.tables)), key=first_values))
