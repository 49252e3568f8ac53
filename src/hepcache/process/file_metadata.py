"""What a function takes out of whole files, such as sums of weights: once for each content."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import uproot

from hepcache.catalogue.catalogue import Catalogue, openers
from hepcache.credentials import without_credentials
from hepcache.errors import BadFileError, ConfigurationError, FingerprintError, OriginError
from hepcache.fileset import FileRecord
from hepcache.fileset.load import RESERVED_METADATA
from hepcache.formats.registry import freshness_of, probe
from hepcache.io.replicas import PLACE_PATIENCE_S, in_order, note_failure, other_content
from hepcache.io.retry import retried
from hepcache.io.validator import storage_options
from hepcache.results import fingerprint

Values = Mapping[str, Any]
Ask = Callable[[Callable[[Catalogue], Any]], Any]

_KIND = "extracted"


@dataclass(frozen=True)
class Extraction:
    """Takes metadata out of files, and adds them up for each dataset.

    ``extract``: gets a file that uproot has opened, and returns values by name.
    ``reduce``: gets what ``extract`` returned for each file of a dataset, and returns what all its
    chunks are given; ``None``: each chunk is given its own file's values.
    """

    extract: Callable[[Any], Values]
    reduce: Callable[[list[Values]], Values] | None = None

    def metadata(
        self, files: Sequence[tuple[str, FileRecord]], ask: Ask, options: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return what each file's chunks are given.

        ``files``: dataset and record of each.
        ``ask``: asks the catalogue, which keeps the values by content and by the function's
        fingerprint.
        ``options``: options for ``uproot.open``.
        """
        values = self._of_contents({_content(record): record for _, record in files}, ask, options)
        found = [values[_content(record)] for _, record in files]
        if self.reduce is not None:
            by_dataset: dict[str, list[Values]] = {}
            for (dataset, _), of_file in zip(files, found, strict=True):
                by_dataset.setdefault(dataset, []).append(of_file)
            totals = {name: _plain(self.reduce(all_)) for name, all_ in by_dataset.items()}
            found = [totals[dataset] for dataset, _ in files]
        return found

    def _of_contents(
        self, records: Mapping[str, FileRecord], ask: Ask, options: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        try:
            code = fingerprint(self.extract)
        except FingerprintError as error:
            warnings.warn(f"what is extracted from files is not kept: {error}", stacklevel=7)
            values, failures = self._opened(records, options)
            if failures:
                raise failures[0] from failures[0].__cause__
            return values

        def stored(catalogue: Catalogue) -> dict[str, bytes | None]:
            return {name: catalogue.blob_get(_KIND, f"{name}-{code}") for name in records}

        def store(catalogue: Catalogue) -> None:
            for name, values in new.items():
                catalogue.blob_put(_KIND, f"{name}-{code}", json.dumps(values).encode())

        known: Mapping[str, bytes | None] = ask(stored)
        new, failures = self._opened(
            {name: record for name, record in records.items() if known[name] is None}, options
        )
        # Also where one file of many fails: the others need not be opened again.
        if new:
            ask(store)
        if failures:
            raise failures[0] from failures[0].__cause__
        return {name: json.loads(text) for name, text in known.items() if text is not None} | new

    def _opened(
        self, records: Mapping[str, FileRecord], options: Mapping[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], list[Exception]]:
        """Return what is in files, and why some can't be read."""
        passed = {name: value for name, value in options.items() if name != "storage_options"}
        flat = {**passed, **storage_options(options)}

        def at_place(record: FileRecord, place: str) -> dict[str, Any]:
            validator = record.validator
            if record.places and place != record.places[0]:
                found = probe(place, record.tree, options=options)
                problem = other_content((record.uuid, record.tag), (found.uuid, found.tag))
                if problem:
                    raise OriginError(without_credentials(place), problem)
                validator = found.validator
            patience_s = PLACE_PATIENCE_S if len(record.places) > 1 else math.inf
            with retried(
                lambda: uproot.open({place: None}, **flat), patience_s=patience_s
            ) as file:
                values = _plain(self.extract(file))
                uuid = str(file.file.uuid)
            # What is kept as one content's must not be another's that took its place meanwhile.
            fresh = freshness_of(place, storage_options(options), patience_s=patience_s)
            if (uuid, fresh.validator) != (record.uuid, validator):
                problem = "the file was written while it was being read; run again"
                raise OriginError(without_credentials(place), problem)
            return values

        def of_file(record: FileRecord) -> dict[str, Any]:
            places = in_order(record.places) or [record.path]
            try:
                for place in places[:-1]:
                    try:
                        return at_place(record, place)
                    except (OSError, BadFileError) as error:
                        note_failure(place, error)
                return at_place(record, places[-1])
            except Exception as error:
                error.add_note(f"while extracting from {without_credentials(record.path)}")
                raise

        values: dict[str, dict[str, Any]] = {}
        failures: list[Exception] = []
        with ThreadPoolExecutor(openers(record.path for record in records.values())) as pool:
            jobs = {name: pool.submit(of_file, record) for name, record in records.items()}
            for name, job in jobs.items():
                try:
                    values[name] = job.result()
                except Exception as error:  # whatever a user's function raises
                    failures.append(error)
        return values, failures


def _content(record: FileRecord) -> str:
    return f"{record.uuid}-{record.tag}"


def _plain(values: Any) -> dict[str, Any]:
    """Return values as they will be when they have been stored.

    Raises ``ConfigurationError``: they can't be, or have a name that coffea uses.
    """
    expected = "a function that returns numbers, texts and lists of them by name"
    if not isinstance(values, Mapping):
        raise ConfigurationError("extract", expected, type(values).__name__)
    if reserved := RESERVED_METADATA.intersection(values):
        raise ConfigurationError("extract", "names that coffea does not use", sorted(reserved))
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(values), default=_number))
    except TypeError as error:
        raise ConfigurationError("extract", expected, str(error)) from error
    return plain


def _number(value: Any) -> Any:
    """Return Python's value of a number or an array of NumPy's or awkward's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"no number, text or list: {type(value).__name__}")
