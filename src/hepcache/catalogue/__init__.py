"""The catalogue: each file is opened once, ever, and looked at cheaply after that."""

from __future__ import annotations

from hepcache.catalogue.catalogue import Catalogue, columns_of, expand

__all__ = ["Catalogue", "columns_of", "expand"]
