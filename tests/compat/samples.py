"""Files made for comparisons: every type that uproot writes, and small NanoAOD."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

ENTRIES = 60
CLUSTERS = (0, 25, 26, 60)
DTYPES = ("bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
COMPRESSIONS = {
    "none": None,
    "zlib": uproot.ZLIB(1),
    "lzma": uproot.LZMA(1),
    "lz4": uproot.LZ4(1),
    "zstd": uproot.ZSTD(1),
}

Table = dict[str, Any]


def values(dtype: str, length: int) -> np.ndarray:
    """Return values of a type, with its extremes."""
    kind = np.dtype(dtype)
    made = np.random.default_rng(length).integers(0, 100, length).astype(kind)
    if kind.kind == "f":
        special = [np.nan, np.inf, -np.inf, -0.0, np.finfo(kind).tiny / 2, np.finfo(kind).max]
    elif kind.kind == "b":
        special = [True, False]
    else:
        special = [np.iinfo(kind).min, np.iinfo(kind).max]
    made[: len(special)] = special
    return made


def flat() -> Table:
    """Return one number per entry, or an array of fixed shape."""
    table = {f"{dtype}_one": values(dtype, ENTRIES) for dtype in DTYPES}
    for dtype in DTYPES:
        table[f"{dtype}_three"] = values(dtype, 3 * ENTRIES).reshape(-1, 3)
    table["matrix"] = values("f8", 4 * ENTRIES).reshape(-1, 2, 2)
    return table


def jagged() -> Table:
    """Return lists of numbers, empty ones among them, and lists that are all empty."""
    counts = np.arange(ENTRIES) % 4
    lists = {
        f"{dtype}_list": ak.unflatten(values(dtype, counts.sum()), counts) for dtype in DTYPES
    }
    nothing = ak.unflatten(values("f4", 6)[:0], np.zeros(ENTRIES, dtype=np.int64))
    return {**lists, "nothing": nothing}


def strings() -> Table:
    """Return strings: empty, short, not ASCII, and longer than one byte can count."""
    words = ["", "a", "Zürich", "x" * 300]
    return {"word": ak.Array([words[entry % 4] for entry in range(ENTRIES)])}


def records() -> Table:
    """Return records, one per entry and in lists."""
    counts = np.arange(ENTRIES) % 3
    pt, charge = values("f4", counts.sum()), values("i2", counts.sum())
    lists = ak.zip({"pt": ak.unflatten(pt, counts), "charge": ak.unflatten(charge, counts)})
    one = ak.zip({"pt": values("f8", ENTRIES), "charge": values("i8", ENTRIES)})
    return {"lists": lists, "one": one, "pair": ak.zip((values("u1", ENTRIES), one.pt))}


def deep() -> Table:
    """Return what only an ntuple can hold: lists of lists, of strings, and of records."""
    entries = range(ENTRIES)
    lists = [[[float(entry)] * (entry % 3)] * (entry % 4) for entry in entries]
    inner = [[{"x": float(entry)}] * (entry % 3) for entry in entries]
    return {
        "lists": ak.Array(lists),
        "words": ak.Array([["x" * entry] * (entry % 3) for entry in entries]),
        "records": ak.Array([{"a": {"b": entry, "c": inner[entry]}} for entry in entries]),
    }


def missing() -> Table:
    """Return what an ntuple can hold and coffea can't read: missing values."""
    return {"number": ak.Array([None if entry % 3 else entry for entry in range(ENTRIES)])}


def either() -> Table:
    """Return what coffea leaves out: numbers or strings."""
    return {
        "number": values("f4", ENTRIES),
        "either": ak.Array([entry if entry % 3 else "abc" for entry in range(ENTRIES)]),
    }


def write(path: Path, tree: str, table: Table, *, ntuple: bool, compression: Any = None) -> None:
    """Write a tree or an ntuple of several clusters."""
    if ntuple and compression is None:
        compression = uproot.ZLIB(0)  # which None stands for; uproot 5.7.0 doesn't take it here
    with uproot.recreate(path, compression=compression) as file:
        make = file.mkrntuple if ntuple else file.mktree
        first, *others = (
            {name: column[start:stop] for name, column in table.items()}
            for start, stop in itertools.pairwise(CLUSTERS)
        )
        written = make(tree, first)
        for part in others:
            written.extend(part)


def write_all(directory: Path) -> dict[str, tuple[Path, str]]:
    """Write a file of each kind; return path and tree by name."""
    kinds = {"flat": flat, "jagged": jagged, "strings": strings, "records": records, "deep": deep}
    found = {}

    def keep(name: str, table: Table, **options: Any) -> None:
        path = directory / f"{name}.root"
        write(path, "some/tree", table, **options)
        found[name] = path, "some/tree"

    for name, make in kinds.items():
        if name != "deep":
            keep(f"{name}_tree", make(), ntuple=False)
        keep(f"{name}_ntuple", make(), ntuple=True)
    some = {name: (flat() | jagged())[name] for name in ("f4_list", "i2_three", "u8_one")}
    for name, compression in COMPRESSIONS.items():
        keep(f"{name}_tree", some, ntuple=False, compression=compression)
        keep(f"{name}_ntuple", some, ntuple=True, compression=compression)
    nothing = {name: column[:0] for name, column in (flat() | jagged()).items()}
    keep("empty_tree", nothing, ntuple=False)
    keep("empty_ntuple", nothing, ntuple=True)
    return found


def nano(entries: int, seed: int) -> Table:
    """Return events of a small NanoAOD."""
    made = np.random.default_rng(seed)

    def collection(most: int, **fields: Any) -> Any:
        counts = made.integers(0, most + 1, entries)
        items = {
            name: ak.unflatten(make(counts.sum()).astype(dtype), counts)
            for name, (dtype, make) in fields.items()
        }
        return ak.zip(items)

    momentum = "f4", lambda count: made.exponential(20, count) + 3
    angle = "f4", lambda count: made.uniform(-2.4, 2.4, count)
    return {
        "run": np.full(entries, 1, dtype="u4"),
        "luminosityBlock": np.arange(entries, dtype="u4") // 10,
        "event": np.arange(entries, dtype="u8"),
        "fixedGridRhoFastjetAll": made.uniform(5, 40, entries).astype("f4"),
        "MET_pt": made.exponential(20, entries).astype("f4"),
        "MET_phi": made.uniform(-3, 3, entries).astype("f4"),
        "MET_MetUnclustEnUpDeltaX": made.normal(0, 2, entries).astype("f4"),
        "MET_MetUnclustEnUpDeltaY": made.normal(0, 2, entries).astype("f4"),
        "HLT_IsoMu24": made.random(entries) > 0.5,
        "Muon": collection(
            3,
            pt=momentum,
            eta=angle,
            phi=angle,
            mass=("f4", lambda count: np.full(count, 0.105)),
            charge=("i4", lambda count: made.choice([-1, 1], count)),
            jetIdx=("i4", lambda count: made.integers(-1, 2, count)),
        ),
        "Jet": collection(
            5,
            pt=momentum,
            eta=angle,
            phi=angle,
            mass=("f4", lambda count: made.exponential(5, count)),
            area=("f4", lambda count: made.normal(0.5, 0.02, count)),
            rawFactor=("f4", lambda count: made.uniform(-0.05, 0.1, count)),
            genJetIdx=("i4", lambda count: made.integers(-1, 2, count)),
        ),
        "GenJet": collection(4, pt=momentum, eta=angle, phi=angle, mass=momentum),
        # Only with it coffea takes the events for simulated ones.
        "GenPart": collection(2, pt=momentum, eta=angle, phi=angle, mass=momentum),
    }


def write_nano(directory: Path) -> None:
    """Write files of a small NanoAOD, and some that can't be read."""
    for seed, name in enumerate(("dy_0", "dy_1", "tt")):
        write(directory / f"{name}.root", "Events", nano(ENTRIES, seed), ntuple=False)
    write(directory / "ntuple.root", "Events", nano(ENTRIES, 3), ntuple=True)
    write(directory / "elsewhere.root", "some/Tree", nano(ENTRIES, 4), ntuple=False)
    nothing = {name: column[:0] for name, column in nano(ENTRIES, 5).items()}
    write(directory / "empty.root", "Events", nothing, ntuple=False)
    whole = (directory / "tt.root").read_bytes()
    (directory / "short.root").write_bytes(whole[: len(whole) // 2])
    (directory / "text.root").write_text("not a ROOT file\n" * 100)
