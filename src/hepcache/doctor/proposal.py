"""A commented configuration for this machine; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hepcache.configured import as_yaml
from hepcache.doctor.places import Place, SharedMount
from hepcache.report.units import bytes_text

__all__ = ["chosen_settings", "proposal"]

_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?P<value>[^#]*?)(?P<comment>\s*#.*)?$")
_HEAD = """\
# hepcache's configuration for {where}, written by 'hepcache init'.
#
# What is commented out is the default. Dask reads all files in {paths};
# a variable such as DASK_HEPCACHE__CACHE__CAPACITY=200GiB counts more than any file.
# 'hepcache config show' tells what is in force, 'hepcache doctor' what is wrong with it.
"""


def chosen_settings(place: Place) -> dict[str, tuple[object, str]]:
    """Return what a machine's configuration should say, with the reason.

    Parameters
    ----------
    place
        Where the cache is to be.

    Returns
    -------
    dict of str to tuple
        Key below ``hepcache`` to value and reason.
    """
    capacity = (
        ("80%", "the volume has nothing else to do")
        if place.own
        else ("50%", "the volume is the system's or the homes' too")
    )
    return {
        "cache.directory": (place.directory, f"{place.mount_point}: {place.kind}"),
        "cache.capacity": capacity,
    }


def proposal(
    defaults: str,
    chosen: Mapping[str, tuple[object, str]],
    places: Sequence[Place],
    shared: Sequence[SharedMount],
    *,
    where: str = "this machine",
    paths: Sequence[str] = (),
) -> str:
    """Return a configuration file: what was chosen, and all defaults as comments.

    Parameters
    ----------
    defaults
        Text of ``hepcache.yaml``.
    chosen
        What :func:`chosen_settings` says.
    places, shared
        What was looked at.
    where, paths
        The machine, and where Dask looks for files.
    """
    lines = [_HEAD.format(where=where, paths=", ".join(paths) or "its paths"), "# Volumes:"]
    for one in places:
        verdict = f"no: {one.problem}" if one.problem else "possible"
        size = bytes_text(one.size_bytes)
        lines.append(f"#   {one.mount_point} ({size}): {one.kind}; {verdict}")
    lines += ["# Shared with other machines, so no place for a cache:"] * bool(shared)
    for mount in shared:
        kept = ", and the kernel keeps what is read of it (fsc)" if mount.fsc else ""
        lines.append(f"#   {mount.mount_point} ({mount.filesystem} from {mount.source}){kept}")
    return "\n".join([*lines, "", *_body(defaults, chosen)]) + "\n"


def _body(defaults: str, chosen: Mapping[str, tuple[object, str]]) -> list[str]:
    lines, above = [], ""
    for line in defaults.splitlines():
        found = _LINE.match(line)
        if found is None or line.startswith("#"):
            # The rest of a comment; the head of the file says what ours says.
            if line.startswith("  "):
                lines.append(f"  # {line[2:]}")
            continue
        indent, name = found["indent"], found["name"]
        if not indent:
            lines.append(line)
            continue
        if len(indent) == 2:
            above = ""
        key = f"{above}{name}"
        if not found["value"].strip():
            above = f"{name}."
            active = any(one.startswith(above) for one in chosen)
            lines.append(line if active else f"  # {line[2:]}")
        elif key in chosen:
            value, reason = chosen[key]
            comment = (found["comment"] or "").strip()
            lines += [f"{indent}{comment}"] * bool(comment)
            lines.append(f"{indent}{name}: {as_yaml(value)}  # {reason}")
        else:
            depth = len(indent) if any(one.startswith(above or "-") for one in chosen) else 2
            lines.append(f"{line[:depth]}# {line[depth:]}")
    return lines
