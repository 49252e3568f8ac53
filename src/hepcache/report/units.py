"""Numbers as a reader wants them: bytes, seconds, counts."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "ratio_text", "seconds_text"]


def bytes_text(nbytes: float) -> str:
    """Return bytes in decimal units, as networks and disks are sold.

    Examples
    --------
    >>> bytes_text(0), bytes_text(999), bytes_text(12_345), bytes_text(2_500_000_000)
    ('0 B', '999 B', '12.3 kB', '2.50 GB')
    """
    if abs(nbytes) < 1000:
        return f"{nbytes:.0f} B"
    for power, unit in enumerate(("kB", "MB", "GB"), start=1):
        if abs(nbytes) / 1000**power < 999.5:
            return f"{_three(nbytes / 1000**power)} {unit}"
    return f"{_three(nbytes / 1000**4)} TB"


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits.

    Examples
    --------
    >>> seconds_text(0.0123), seconds_text(4.567), seconds_text(83), seconds_text(7500)
    ('12.3 ms', '4.57 s', '83.0 s', '2 h 05 min')
    """
    if seconds >= 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes:02d} min"
    if seconds >= 600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    if seconds >= 1 or seconds == 0:
        return f"{_three(seconds)} s" if seconds else "0 s"
    return f"{_three(seconds * 1000)} ms"


def count_text(count: float) -> str:
    """Return a count with thousands separated, or rounded where it is large.

    Examples
    --------
    >>> count_text(999), count_text(123_456), count_text(1_230_000)
    ('999', '123,456', '1.23 M')
    """
    if abs(count) >= 1e9:
        return f"{_three(count / 1e9)} G"
    if abs(count) >= 1e6:
        return f"{_three(count / 1e6)} M"
    return f"{count:,.0f}"


def ratio_text(ratio: float) -> str:
    """Return a part of one as a percentage that is 100 only when it is.

    Examples
    --------
    >>> ratio_text(1), ratio_text(0.99996), ratio_text(0.5), ratio_text(0)
    ('100 %', '99.9 %', '50.0 %', '0 %')
    """
    if ratio in (0, 1):
        return f"{ratio * 100:.0f} %"
    return f"{min(max(ratio * 100, 0.1), 99.9):.1f} %"


def _three(value: float) -> str:
    """Return a number below 1000 with three digits."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
