"""What notebooks show is kept beside their code: which code it was, and what may not be kept."""

from __future__ import annotations

import re
from typing import Any

import xxhash

# Directories of the machine that made them, addresses outside of private networks, dates, and
# times of day.
_FOREIGN = re.compile(
    r"/(?:root|work|tmp|var|mnt|builds?)/[\w./-]*|/home/(?!analyst\b)\w+"
    r"|\b(?!10\.|127\.|0\.)\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b20\d\d-[01]\d-[0-3]\d\b|(?<![\d:])[012]\d:[0-5]\d:[0-5]\d\b"
)
_PICTURE = "image/png"  # letters by chance


def sources_digest(notebook: Any) -> str:
    """Return a digest of the code that the outputs belong to."""
    code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return xxhash.xxh3_64_hexdigest("\0".join(code).encode())


def seal(notebook: Any) -> None:
    """Note which code the outputs belong to."""
    notebook.metadata["hepcache"] = {"recorded": sources_digest(notebook)}


def foreign_words(notebook: Any) -> list[str]:
    """Return what outputs tell of the machine instead of the pool."""
    texts = []
    for cell in notebook.cells:
        for one in cell.get("outputs", []):
            data = one.get("data", {}).items()
            texts += [one.get("text", ""), *(str(it) for kind, it in data if kind != _PICTURE)]
    return sorted(set(_FOREIGN.findall("\n".join(texts))))
