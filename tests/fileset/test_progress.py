from __future__ import annotations

import io

from rich.console import Console

from hepcache.fileset.progress import track


def drawn(*, terminal: bool, moment_s: float, enabled: bool = True) -> tuple[list[int], str]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    items = track(range(5), 5, "Opening", enabled=enabled, console=console, moment_s=moment_s)
    return list(items), out.getvalue()


def test_a_bar_is_drawn_for_longer_work_and_goes_when_done() -> None:
    items, text = drawn(terminal=True, moment_s=-1)
    assert items == [0, 1, 2, 3, 4]
    assert "Opening" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is wiped


def test_nothing_is_drawn_for_a_moment_or_without_a_terminal_or_when_unwanted() -> None:
    everything = [0, 1, 2, 3, 4]
    assert drawn(terminal=True, moment_s=60) == (everything, "")
    assert drawn(terminal=False, moment_s=-1) == (everything, "")
    assert drawn(terminal=True, moment_s=-1, enabled=False) == (everything, "")


def test_a_bar_inside_another_display_is_left_out() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with console.status("busy"):
        items = track(range(3), 3, "Opening", console=console, moment_s=-1)
        assert list(items) == [0, 1, 2]


def test_a_bar_goes_when_the_work_is_given_up() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True)
    items = track(range(5), 5, "Opening", console=console, moment_s=-1)
    next(items)
    next(items)
    items.close()  # type: ignore[attr-defined]
    console.print("after")
    with console.status("another display can start"):
        pass
