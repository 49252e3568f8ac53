"""numba's private names that hepcache uses."""

from __future__ import annotations

from typing import Any

__all__ = ["compiles_more", "dispatcher_of"]


def compiles_more(function: Any) -> bool:
    """Return whether a compiled function takes other types than those it was made for."""
    return bool(getattr(function, "_can_compile", False))


def dispatcher_of(ufunc: Any) -> Any:
    """Return what compiles a ufunc; it has ``py_func`` and ``targetoptions``."""
    return ufunc._dispatcher  # noqa: SLF001
