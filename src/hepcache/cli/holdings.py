"""What ``hepcache cache`` says of a cache: figures for machines, tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from hepcache.cache import ColumnCache
    from hepcache.cache.stock import Item

__all__ = ["info_of", "info_table", "line_of", "occupancy_table"]


def info_of(one: ColumnCache, items: list[Item]) -> dict[str, Any]:
    """Return the figures of a cache and of what it holds."""
    from hepcache.cache.room.limits import look_at_volume
    from hepcache.cache.stock import occupancy

    volume = look_at_volume(one.layout)
    damaged = [path.stat().st_size for path in one.layout.quarantine.iterdir()]
    limits = one.limits
    return {
        "directory": str(one.directory),
        "columns": len(items),
        "used_bytes": sum(item.stored.nbytes for item in items),
        "capacity_bytes": limits.capacity(volume),
        "volume_bytes": volume.total_bytes,
        "free_bytes": volume.free_bytes,
        "watermarks": {"run": limits.run, "cull": limits.cull, "stop": limits.stop},
        "contents": len({(item.stored.key.uuid, item.stored.key.tag) for item in items
                         if item.stored.key}),
        "quarantined": len(damaged),
        "quarantined_bytes": sum(damaged),
        "by_dataset": occupancy(items, lambda item: item.dataset),
        "by_column": occupancy(items, lambda item: item.column),
    }  # fmt: skip


def info_table(values: dict[str, Any]) -> Table:
    """Return the table of a cache's figures."""
    from rich.table import Table

    from hepcache.report.units import bytes_text, count_text

    marks = ", ".join(f"{name} {value:.0%}" for name, value in values["watermarks"].items())
    used, capacity = values["used_bytes"], values["capacity_bytes"]
    table = Table.grid(padding=(0, 2))
    table.add_row("[bold]directory", f"[bold]{values['directory']}")
    table.add_row("used", f"{bytes_text(used)} of {bytes_text(capacity)} ({used / capacity:.1%})")
    table.add_row(
        "volume",
        f"{bytes_text(values['free_bytes'])} of {bytes_text(values['volume_bytes'])} free",
    )
    table.add_row("watermarks", marks)
    table.add_row(
        "columns", f"{count_text(values['columns'])} of {count_text(values['contents'])} files"
    )
    if values["quarantined"]:
        size = bytes_text(values["quarantined_bytes"])
        table.add_row("[yellow]quarantine", f"[yellow]{values['quarantined']} files, {size}")
    return table


def occupancy_table(what: str, found: dict[str, tuple[int, int]], show_all: bool) -> Table:
    """Return the table of what occupies the room."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from hepcache.report.units import bytes_text, count_text

    total = sum(nbytes for _, nbytes in found.values()) or 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(what)
    for heading in ("stored", "size", "part"):
        table.add_column(heading, justify="right")
    for name, (count, nbytes) in list(found.items())[: None if show_all else 12]:
        table.add_row(name, count_text(count), bytes_text(nbytes), f"{nbytes / total:.1%}")
    if not show_all and len(found) > 12:
        table.add_row(f"and {len(found) - 12} more; see --all", "", "", "")
    return table


def line_of(item: Item) -> dict[str, Any]:
    """Return the figures of one stored column."""
    key = item.stored.key
    return {
        "dataset": item.dataset,
        "file": item.path,
        "tree": key.tree if key else "?",
        "start": key.start if key else 0,
        "stop": key.stop if key else 0,
        "column": item.column,
        "nbytes": item.stored.nbytes,
        "stored_s": item.stored.stored_ns / 1e9,
    }
