"""What ``hepcache cache`` says of a cache: figures for machines, tables for people."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.cache import ColumnCache
    from hepcache.cache.stock import Item
    from hepcache.cache.upkeep import Use

__all__ = ["info_of", "info_table", "line_of", "list_table", "occupancy_table"]

_TOP = 12  # lines of a table that is not asked for in full


def info_of(one: ColumnCache, items: list[Item]) -> dict[str, Any]:
    """Return the figures of a cache and of what it holds, JSON-ready."""
    from hepcache.cache.stock import occupancy
    from hepcache.cache.usage import usage_of

    usage = usage_of(one, items)
    limits = usage.limits
    return {
        "directory": usage.directory,
        "columns": usage.columns,
        "contents": usage.contents,
        "used_bytes": usage.used_bytes,
        "believed_bytes": usage.believed_bytes,
        "capacity_bytes": usage.capacity_bytes,
        "by_user": {str(uid): nbytes for uid, nbytes in usage.by_user.items()},
        "volume": {"mount_point": usage.mount_point, "filesystem": usage.filesystem},
        "volume_bytes": usage.volume.total_bytes,
        "free_bytes": usage.volume.free_bytes,
        "watermarks": {"run": limits.run, "cull": limits.cull, "stop": limits.stop},
        "generation": usage.generation,
        "oldest_s": usage.oldest_s,
        "newest_s": usage.newest_s,
        "quarantined": usage.quarantined,
        "quarantined_bytes": usage.quarantined_bytes,
        "small_files": usage.small_files,
        "small_bytes": usage.small_bytes,
        "by_dataset": occupancy(items, lambda item: item.dataset),
        "by_column": occupancy(items, lambda item: item.column),
    }


def info_table(values: dict[str, Any]) -> Table:
    """Return the table of a cache's figures."""
    from rich.markup import escape
    from rich.table import Table

    from hepcache.report.units import bytes_text, count_text, ratio_text

    used, capacity = values["used_bytes"], values["capacity_bytes"]
    marks = ", ".join(f"{name} {value:.0%}" for name, value in values["watermarks"].items())
    part = ratio_text(used / capacity if capacity else 0)
    place = " ".join(values["volume"].values()) or "unknown"
    free = f"{bytes_text(values['free_bytes'])} of {bytes_text(values['volume_bytes'])} free"
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]directory", f"[bold]{escape(values['directory'])}")
    table.add_row("volume", escape(f"{place}: {free}"))
    table.add_row("watermarks", marks)
    table.add_row("used", f"{bytes_text(used)} of {bytes_text(capacity)} ({part})")
    if len(values["by_user"]) > 1:
        users = [f"{_user(uid)} {bytes_text(size)}" for uid, size in values["by_user"].items()]
        table.add_row("users", escape(", ".join(users)))
    table.add_row(
        "columns", f"{count_text(values['columns'])} of {count_text(values['contents'])} files"
    )
    if values["columns"]:
        table.add_row("stored", f"{_when(values['oldest_s'])} to {_when(values['newest_s'])}")
    table.add_row(
        "beside", f"{count_text(values['small_files'])} forms and notes, "
        f"{bytes_text(values['small_bytes'])}"
    )  # fmt: skip
    table.add_row("generation", count_text(values["generation"]))
    if values["quarantined"]:
        size = bytes_text(values["quarantined_bytes"])
        table.add_row("[yellow]quarantine", f"[yellow]{values['quarantined']} files, {size}")
    return table


def occupancy_table(what: str, found: dict[str, tuple[int, int]], show_all: bool) -> Table:
    """Return the table of what occupies the room."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from hepcache.report.units import bytes_text, count_text, ratio_text

    total = sum(nbytes for _, nbytes in found.values()) or 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(what, overflow="fold")
    for heading in ("stored", "size", "part"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, (count, nbytes) in list(found.items())[: None if show_all else _TOP]:
        table.add_row(
            Text(name), count_text(count), bytes_text(nbytes), ratio_text(nbytes / total)
        )
    if not show_all and len(found) > _TOP:
        table.add_row(f"and {len(found) - _TOP} more; see --all", "", "", "")
    return table


def line_of(one: ColumnCache, item: Item, use: Use) -> dict[str, Any]:
    """Return the figures of one stored column, JSON-ready."""
    start, stop = item.segment
    return {
        "directory": str(one.directory),
        "dataset": item.dataset,
        "file": item.path,
        "uuid": item.content[0],
        "tree": item.tree,
        "start": start,
        "stop": stop,
        "column": item.column,
        "nbytes": item.stored.nbytes,
        "stored_s": item.stored.stored_ns / 1e9,
        "uses": use.count,
        "idle": use.idle,
    }


def list_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Return the table of stored columns; the cache is named where there are several."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from hepcache.report.units import bytes_text, count_text

    several = len({line["directory"] for line in lines}) > 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("column", overflow="fold")
    table.add_column("entries", no_wrap=True)
    for heading in ("size", "uses", "idle", "stored"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("dataset", "file", *(["cache"] if several else [])):
        table.add_column(heading, overflow="fold")
    for line in lines:
        texts = [line["dataset"], line["file"], *([line["directory"]] if several else [])]
        table.add_row(
            Text(line["column"]), f"{line['start']}-{line['stop']}", bytes_text(line["nbytes"]),
            count_text(line["uses"]), count_text(line["idle"]), _when(line["stored_s"]),
            *map(Text, texts),
        )  # fmt: skip
    return table


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _user(uid: str) -> str:
    import pwd

    try:
        return pwd.getpwuid(int(uid)).pw_name
    except KeyError:
        return uid
