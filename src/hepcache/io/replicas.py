"""The places of one file: which of them serves, and which failed of late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from hepcache.credentials import told_cause, without_credentials
from hepcache.errors import BadFileError, OriginError
from hepcache.io.ranges import Range
from hepcache.io.requests import Requests
from hepcache.io.retry import is_transient
from hepcache.io.transport import FileChangedError, Transport, is_url
from hepcache.telemetry import PlaceUse

PLACE_PATIENCE_S = 10.0
"""After so many seconds of failures a request is not repeated where another place may serve."""

_REST_S, _LONGEST_REST_S = 60.0, 600.0


class Rests:
    """Which sources have failed of late, and are not to be asked for a while.

    A source that fails again rests twice as long, ten minutes at most.
    """

    def __init__(self) -> None:
        self._rests: dict[str, tuple[float, float, str]] = {}  # until when, how long, why

    def begin(self, source: str, reason: str) -> None:
        """Note that a source has failed."""
        _, before_s, _ = self._rests.get(source, (0.0, 0.0, ""))
        length_s = min(max(_REST_S, 2 * before_s), _LONGEST_REST_S)
        self._rests[source] = time.monotonic() + length_s, length_s, reason

    def end(self, source: str) -> None:
        """Forget that a source ever failed."""
        self._rests.pop(source, None)

    def reason(self, source: str) -> str:
        """Return why a source is not to be asked now; ``""`` if it may be."""
        until, _, reason = self._rests.get(source, (0.0, 0.0, ""))
        return reason if until > time.monotonic() else ""

    def forget(self) -> None:
        """Let every source be asked again."""
        self._rests.clear()


# Of the whole process: all its files know at once that a server is dead.
_rests = Rests()


def place_label(path: str) -> str:
    """Return what a report calls a place: its server, or the directory of a file.

    >>> place_label("root://server//store/a.root"), place_label("/data/a.root")
    ('root://server', '/data')
    """
    if not is_url(path):
        return str(PurePosixPath(path).parent)
    split = urlsplit(path)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"


def note_failure(path: str, error: BaseException) -> None:
    """Remember for a while that a place failed: its server, if that may be why."""
    server = is_url(path) and is_transient(error)
    _rests.begin(place_label(path) if server else path, reason_of(error))


def note_service(path: str) -> None:
    """Forget that a place ever failed."""
    for key in (path, place_label(path)):
        _rests.end(key)


def resting(path: str) -> str:
    """Return why a place is not to be asked now; ``""`` if it may be."""
    return _rests.reason(path) or _rests.reason(place_label(path))


def forget_failures() -> None:
    """Let every place be asked again."""
    _rests.forget()


def in_order(paths: Iterable[str]) -> list[str]:
    """Return places in their order, those that failed of late behind all others."""
    return sorted(paths, key=lambda path: bool(resting(path)))


def reason_of(error: BaseException) -> str:
    """Return an error's words, without the name of the file."""
    if isinstance(error, OriginError):
        return error.problem
    if isinstance(error, BadFileError):
        return next(iter(error.problems.values()))
    return str(error) or type(error).__name__


def other_content(expected: tuple[str, str], found: tuple[str, str]) -> str:
    """Return why a place is not used that has another content; ``""`` where it is the same.

    ``expected``, ``found``: UUID and tag of each.
    """
    if expected[0] != found[0]:
        return f"it is another file: its UUID is {found[0]}, not {expected[0]}"
    if expected[1] != found[1]:
        return f"it is another version of the file, with the same UUID {found[0]}"
    return ""


def all_failed(reasons: Sequence[tuple[str, str]]) -> str:
    """Return one sentence on why no place of a file can be read.

    ``reasons``: every place, and why it can't be read.
    """
    named = "; ".join(f"{without_credentials(place)}: {reason}" for place, reason in reasons)
    return f"none of its {len(reasons)} places can be read: {named}"


class ReplicaRequests:
    """Asks for ranges at one place of a file, and at the next where that fails for good.

    ``places``: paths and URLs, in the order in which they are tried.
    ``open_place``: opens a place.
    ``check``: raises an error unless a place has the very content that is wanted.

    Safe to use from several threads.
    Raises ``OriginError``: no place can be read; the message names them all.
    """

    def __init__(
        self,
        path: str,
        places: Sequence[str],
        open_place: Callable[[str], Requests],
        check: Callable[[str], None],
    ) -> None:
        self.path = path
        self._places, self._open_place, self._check = tuple(places), open_place, check
        self._turn = threading.Lock()
        self._opened: list[tuple[str, Requests]] = []
        self._reported: dict[int, int] = {}
        self._failures: list[tuple[str, str]] = []
        self._open_next({}, None)

    @property
    def transport(self) -> Transport:
        """How bytes come from the place that serves now."""
        return self._opened[-1][1].transport

    @property
    def place(self) -> str:
        """The place that serves now."""
        return self._opened[-1][0]

    @property
    def requested_bytes(self) -> int:
        """Bytes that were asked for, at all places."""
        return sum(requests.requested_bytes for _, requests in self._opened)

    @property
    def read_bytes(self) -> int:
        """Bytes that came, from all places."""
        return sum(requests.read_bytes for _, requests in self._opened)

    def count(self, requested_bytes: int = 0, read_bytes: int = 0) -> None:
        """Count bytes that were fetched ahead."""
        self._opened[-1][1].count(requested_bytes, read_bytes)

    def fetch(self, ranges: Sequence[Range], *, ahead: bool = False) -> list[bytes | memoryview]:
        """Return ranges whole, from the first place that gives them."""
        failed: dict[str, OriginError | BadFileError] = {}
        while True:
            place, requests = self._opened[-1]
            try:
                return requests.fetch(ranges, ahead=ahead)
            except OriginError as error:
                failed[place] = error
            with self._turn:
                # Another thread may have met the same failure, and gone on.
                if self._opened[-1][1] is requests:
                    self._note(place, failed[place])
                    self._open_next(failed, place)
                elif self._opened[-1][0] in failed:
                    raise self._none_left(failed)

    def take_uses(self) -> dict[str, PlaceUse]:
        """Return what was read and what failed at each place since the last call."""
        with self._turn:
            failures, self._failures = self._failures, []
            opened = list(self._opened)
        uses: dict[str, PlaceUse] = {}
        for place, reason in failures:
            label = place_label(place)
            uses[label] = uses.get(label, PlaceUse()) + PlaceUse(failures=1, reason=reason)
        for number, (place, requests) in enumerate(opened):
            came = requests.read_bytes - self._reported.get(number, 0)
            self._reported[number] = self._reported.get(number, 0) + came
            if came:
                label = place_label(place)
                uses[label] = uses.get(label, PlaceUse()) + PlaceUse(read_bytes=came)
        return uses

    def close(self) -> None:
        """Close all places."""
        for _, requests in self._opened:
            requests.transport.close()

    def _open_next(
        self, failed: dict[str, OriginError | BadFileError], present: str | None
    ) -> None:
        """Open the first place that can be opened, of those that have not failed."""
        for place in in_order(self._places):
            if place in failed or place == present:
                continue
            try:
                self._opened.append((place, self._checked(place)))
            except (OriginError, BadFileError) as error:
                failed[place] = error
                self._note(place, error)
                continue
            note_service(place)
            return
        raise self._none_left(failed)

    def _checked(self, place: str) -> Requests:
        """Return requests at a place that has what is wanted."""
        requests = self._open_place(place)
        try:
            self._check(place)
            # What was checked must be what was opened.
            requests.transport.renew()
        except FileChangedError as error:
            requests.transport.close()
            raise OriginError(self.path, f"it is being written ({error})") from error
        except (OriginError, BadFileError):
            requests.transport.close()
            raise
        except Exception as error:  # each library has its own tree of errors
            requests.transport.close()
            raise OriginError(self.path, str(error)) from told_cause(error)
        return requests

    def _note(self, place: str, error: OriginError | BadFileError) -> None:
        note_failure(place, error)
        self._failures.append((place, reason_of(error)))

    def _none_left(self, failed: dict[str, OriginError | BadFileError]) -> OriginError:
        reasons = [(place, reason_of(failed[place])) for place in self._places if place in failed]
        error = OriginError(self.path, all_failed(reasons))
        error.__cause__ = failed[reasons[0][0]]
        return error
