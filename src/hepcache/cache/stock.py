"""What a cache holds, seen as a whole: selected, added up and checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hepcache.cache.disk.files import read_column, verify_payloads
from hepcache.cache.disk.format import Damage, ForeignFile
from hepcache.cache.disk.layout import SUFFIX, from_file_name
from hepcache.cache.inventory import Stored, columns, segment_range
from hepcache.cache.model import key_digest
from hepcache.cache.provenance import Origin, origin_of
from hepcache.cache.store import ColumnCache

__all__ = ["Check", "Item", "check", "occupancy", "select"]


@dataclass(frozen=True, slots=True)
class Item:
    """A stored column, and where its file comes from.

    Attributes
    ----------
    stored
        What lies on the volume.
    origin
        Where it came from; ``None`` where nobody noted it.
    """

    stored: Stored
    origin: Origin | None

    @property
    def content(self) -> tuple[str, str]:
        """UUID and tag of the file's content."""
        return _content(self.stored)

    @property
    def dataset(self) -> str:
        """The datasets' names, or the file's UUID where they are not known."""
        return ", ".join(self.origin.datasets) if self.origin is not None else self.content[0]

    @property
    def path(self) -> str:
        """The file's path, or its UUID where that is not known."""
        return self.origin.path if self.origin is not None else self.content[0]

    @property
    def tree(self) -> str:
        """The tree's name; ``"?"`` where it was too long for a file name."""
        return _named(self.stored.path.rsplit("/", 3)[1])

    @property
    def segment(self) -> tuple[int, int]:
        """First entry of the segment, and the one after its last."""
        return segment_range(self.stored.path.rsplit("/", 2)[1]) or (0, 0)

    @property
    def column(self) -> str:
        """The column's name; ``"?"`` where it was too long for a file name."""
        return _named(self.stored.path.rsplit("/", 1)[1].removesuffix(SUFFIX))


@dataclass(frozen=True, slots=True)
class Check:
    """What a check of all columns found.

    Attributes
    ----------
    sound, sound_bytes
        Columns whose every byte is what was written, and their size.
    damaged
        Files that were set aside.
    foreign
        Files of another key or of a later version, left where they are.
    """

    sound: int
    sound_bytes: int
    damaged: tuple[str, ...]
    foreign: tuple[str, ...]


def select(
    cache: ColumnCache,
    *,
    datasets: Sequence[str] = (),
    files: Sequence[str] = (),
    names: Sequence[str] = (),
) -> list[Item]:
    """Return what is stored and matches.

    Parameters
    ----------
    cache
        The cache.
    datasets, files, names
        Patterns of datasets, of paths or UUIDs, and of columns, as in a
        shell; without any, everything matches.
    """
    origins: dict[tuple[str, str], Origin | None] = {}
    found = []
    for stored in columns(cache.layout):
        content = _content(stored)
        if content not in origins:
            origins[content] = origin_of(cache, *content)
        item = Item(stored, origins[content])
        if (
            _matches(datasets, item.origin.datasets if item.origin else ())
            and _matches(files, (item.path, content[0]))
            and _matches(names, (item.column,))
        ):
            found.append(item)
    return found


def occupancy(items: Iterable[Item], by: Callable[[Item], str]) -> dict[str, tuple[int, int]]:
    """Return columns and bytes by a name, the largest first.

    Parameters
    ----------
    items
        What to add up.
    by
        Gives the name.
    """
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for item in items:
        count, nbytes = found[by(item)]
        found[by(item)] = count + 1, nbytes + item.stored.nbytes
    return dict(sorted(found.items(), key=lambda one: (-one[1][1], one[0])))


def check(
    cache: ColumnCache,
    items: Sequence[Item],
    done: Callable[[int], None] = lambda _: None,
    threads: int = 4,
) -> Check:
    """Read columns whole and compare them with their checksums.

    Parameters
    ----------
    cache
        The cache; workers may use it meanwhile.
    items
        What to check.
    done
        Told the size of each when it was read.
    threads
        Columns that are read at the same time.

    Returns
    -------
    Check
        What was found. Damaged files are set aside.
    """

    def one(item: Item) -> tuple[str, str, int]:
        stored = item.stored
        digest = None if stored.key is None else key_digest(stored.key)
        verdict = "sound"
        try:
            header, data, _ = read_column(stored.path, digest)
            verify_payloads(header, data)
        except Damage:
            cache.set_aside(stored.path)
            verdict = "damaged"
        except ForeignFile:
            verdict = "foreign"
        except OSError:
            verdict = "gone"  # evicted meanwhile
        done(stored.nbytes)
        return verdict, stored.path, stored.nbytes

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(one, items))
    sound = [nbytes for verdict, _, nbytes in found if verdict == "sound"]
    return Check(
        len(sound),
        sum(sound),
        tuple(path for verdict, path, _ in found if verdict == "damaged"),
        tuple(path for verdict, path, _ in found if verdict == "foreign"),
    )


def _content(stored: Stored) -> tuple[str, str]:
    """Return UUID and tag, which are in the path even where the key is too long for it."""
    uuid, _, tag = _named(stored.path.rsplit("/", 4)[1]).rpartition("-")
    return uuid or "?", tag


def _named(file_name: str) -> str:
    name = from_file_name(file_name)
    return "?" if name is None else name


def _matches(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return not patterns or any(
        fnmatchcase(name, pattern) for name in names for pattern in patterns
    )
