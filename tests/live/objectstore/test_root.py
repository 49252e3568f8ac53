"""ROOT as the oracle: it reads what we export, and we read what it writes, bit for bit."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.live.conftest import install_wheels, unable

from hepcache.errors import ObjectStoreError
from hepcache.objectstore import open_store
from hepcache.rntuple import (
    BELOW,
    MAPPINGS,
    NTuple,
    WriteOptions,
    get_file,
    open_in_file,
    put_files,
    write_array,
)

pytestmark = pytest.mark.timeout(900)

ROOT = "root==0.1a12"  # ROOT 6.40
SCRIPTS = Path(__file__).parent / "root"
HOME = Path(__file__).parents[3] / "out/live/root"


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the Python of an environment that has ROOT, which is kept from run to run."""
    version = shutil.which("python3.11")
    if version is None:
        unable("ROOT's wheels are for Python 3.11, of which there is none")
    return install_wheels(HOME, ROOT, python=version) / "python"


def in_root(root: Path, script: str, *arguments: object) -> None:
    done = subprocess.run(
        [root, "-W", "ignore", SCRIPTS / script, *map(str, arguments)],
        capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def seen_by_root(root: Path, file: Path, out: Path) -> dict[str, list[bytes]]:
    """Return what ROOT reads of each column: counts of each level, then the values."""
    out.mkdir()
    in_root(root, "dump.py", file, "Events", out)
    columns = json.loads((out / "columns.json").read_text())["columns"]
    return {
        name: [path.read_bytes() for path in sorted(out.glob(f"{number}.*"))]
        for name, (number, _) in columns.items()
    }


def seen_by_us(ntuple: NTuple, name: str, theirs: list[bytes]) -> list[bytes]:
    found = ntuple.layouts([name], 0, ntuple.entries)[name]
    ours = list(levels(ak.to_packed(found, highlevel=False)))
    # Floats that are stored with fewer bits stay small with us, as with uproot.
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.dtype.kind == "f" and mine.nbytes < len(other):
            ours[number] = mine.astype(f"f{mine.itemsize * len(other) // mine.nbytes}")
    return [one.tobytes() for one in ours]


def levels(layout: ak.contents.Content) -> Iterator[np.ndarray]:
    if layout.is_option:
        there = ~np.asarray(ak.is_none(ak.Array(layout)))
        yield there.astype(np.uint64)
        yield from levels(ak.to_packed(layout.project(), highlevel=False))
    elif layout.is_record:
        for content in layout.contents:
            yield from levels(ak.to_packed(content[: layout.length], highlevel=False))
    elif layout.is_list:
        offsets = layout.to_ListOffsetArray64(True)
        yield np.diff(np.asarray(offsets.offsets)).astype(np.uint64)
        yield from levels(ak.to_packed(offsets.content[: offsets.offsets[-1]], highlevel=False))
    elif layout.is_numpy and layout.purelist_depth > 1:
        yield from levels(layout.to_RegularArray())
    else:
        assert layout.is_numpy, layout
        yield np.asarray(layout.data)


def check(theirs: dict[str, list[bytes]], ntuple: NTuple) -> None:
    wrong = [name for name, found in theirs.items() if seen_by_us(ntuple, name, found) != found]
    assert not wrong, wrong


def events(entries: int = 3000) -> ak.Array:
    draw = np.random.default_rng(3)
    counts = draw.integers(0, 5, entries)
    total = int(counts.sum())
    inner = draw.integers(0, 3, total)

    def jagged(values: object) -> ak.Array:
        return ak.unflatten(values, counts)

    numbers = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
    return ak.Array({
        **{one: draw.integers(0, 100, entries).astype(one) for one in numbers},
        "f4": draw.normal(size=entries).astype("f4"),
        "f8": draw.normal(size=entries),
        "flag": draw.random(entries) < 0.5,
        "name": [f"event {one}" * (one % 3) for one in range(entries)],
        "pt": jagged(draw.normal(size=total)),
        "index": jagged(draw.integers(-5, 5, total).astype("i4")),
        "good": jagged(draw.random(total) < 0.3),
        "words": jagged(ak.Array([f"w{one}" for one in range(total)])),
        "nested": jagged(ak.unflatten(draw.normal(size=int(inner.sum())).astype("f4"), inner)),
        "record": ak.zip({"a": draw.normal(size=entries), "b": draw.integers(0, 9, entries)}),
        "muons": ak.zip({
            "pt": jagged(draw.normal(size=total)),
            "charge": jagged(draw.integers(-1, 2, total).astype("i1")),
        }),
        "array": draw.normal(size=(entries, 3)).astype("f4"),
    })  # fmt: skip


@pytest.mark.parametrize("compression", ["zstd", "lz4:5", "none"])
def test_root_reads_what_we_write_and_export(root: Path, tmp_path: Path, compression: str) -> None:
    store = open_store(f"ntpl+mem://root/{tmp_path.name}")
    options = WriteOptions(compression=compression, page_bytes=1024, cluster_bytes=100_000)
    array = events()
    write_array(store, "Events", array, options)
    file = tmp_path / "exported.root"
    assert get_file(store, file) == len(array)
    theirs = seen_by_root(root, file, tmp_path / "seen")
    records = {"record": "a", "muons": "pt"}
    for name in array.fields:
        expected = array[name]
        if name in records:
            name = f"{name}.{records[name]}"
            expected = expected[name.partition(".")[2]]
        layout = ak.to_packed(expected, highlevel=False)
        assert theirs[name] == [one.tobytes() for one in levels(layout)], name
    with NTuple(store) as ntuple:
        check(theirs, ntuple)


def test_root_reads_pages_of_many_numbers(root: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    array = ak.Array({
        "f4": draw.normal(size=200_000).astype("f4"),
        "i8": draw.integers(-1000, 1000, 200_000),
        "jagged": ak.unflatten(draw.normal(size=400_000), np.full(200_000, 2)),
    })  # fmt: skip
    store = open_store(f"ntpl+mem://root/{tmp_path.name}")
    write_array(store, "Events", array, WriteOptions(compression="zstd"))
    file = tmp_path / "large.root"
    get_file(store, file)
    theirs = seen_by_root(root, file, tmp_path / "seen")
    for name in array.fields:
        layout = ak.to_packed(array[name], highlevel=False)
        assert theirs[name] == [one.tobytes() for one in levels(layout)], name


@pytest.mark.parametrize(("compression", "checksums"), [(505, 1), (0, 0)])
def test_we_read_what_root_writes(
    root: Path, tmp_path: Path, compression: int, checksums: int
) -> None:
    file = tmp_path / "theirs.root"
    in_root(root, "write.py", file, compression, checksums)
    theirs = seen_by_root(root, file, tmp_path / "seen")
    assert len(theirs) > 60
    with open_in_file(str(file), "Events") as ntuple:
        check(theirs, ntuple)
    # As objects, and back in a file, it is the same to both.
    for mapping in MAPPINGS:
        store = open_store(f"ntpl+mem://root/{tmp_path.name}/{mapping}")
        put_files(store, [file], options=WriteOptions(mapping=mapping, template=BELOW))
        with NTuple(store) as ntuple:
            check(theirs, ntuple)
    back = tmp_path / "back.root"
    get_file(store, back)
    assert seen_by_root(root, back, tmp_path / "seen-back") == theirs


# Fields that ROOT stores with fewer bits than it was given.
ROUNDED = {
    "half", "half_double", "quantized", "quantized_double", "small_double", "truncated",
    "truncated_double",
}  # fmt: skip


def test_root_reads_what_we_export_of_every_kind_of_field(root: Path, tmp_path: Path) -> None:
    file, back = tmp_path / "theirs.root", tmp_path / "back.root"
    written = of_all_kinds(root, "write", file)
    theirs = of_all_kinds(root, "read", file)
    assert len(theirs) > 90
    for name, (kind, values) in written.items():
        seen = theirs[name][1][-len(values) :]
        if name in ROUNDED:
            assert np.allclose(values, seen, atol=0.04), name
        else:
            assert in_order(kind, values) == in_order(kind, seen), name
    store = open_store(f"ntpl+mem://root/{tmp_path.name}")
    put_files(store, [file])
    with uproot.open(file) as opened, NTuple(store) as ntuple:
        tree = opened["Events"]
        assert set(ntuple.names) == set(theirs)
        with pytest.raises(ObjectStoreError, match="'streamed': ROOT streams TNamed whole"):
            ntuple.arrays(["streamed"])
        for name, (kind, values) in theirs.items():
            if name == "streamed":
                continue
            ours = as_lists(ntuple.arrays([name])[name])
            # uproot takes the alternatives of all clusters from the first, and 32 bits of doubles.
            if "variant" not in name and name != "quantized_double":
                assert ours == as_lists(tree[name].array()), name
            if name.startswith("late_variant"):
                # Where nothing was written there is none of the alternatives; ROOT has the first.
                missing = len(values) - len(written[name][1])
                empty = [] if kind.startswith("std::vector") else None
                assert ours[:missing] == [empty] * missing
                ours, values = ours[missing:], values[missing:]
            assert in_order(kind, [of_kind(kind, value) for value in ours]) == (
                in_order(kind, values)
            ), name
    get_file(store, back)
    assert of_all_kinds(root, "read", back) == theirs


def of_all_kinds(root: Path, what: str, file: Path) -> dict[str, tuple[str, list[Any]]]:
    """Return the types and values of fields that ROOT has written to a file, or reads there."""
    values = file.with_suffix(f".{what}.json")
    in_root(root, "kinds.py", what, file, values)
    found: dict[str, tuple[str, list[Any]]] = json.loads(values.read_text())
    return found


def as_lists(values: Any) -> Any:
    if isinstance(values, ak.Array):
        values = ak.to_list(values)
    if isinstance(values, bytes):
        return list(values)
    if isinstance(values, dict):
        return {name: as_lists(value) for name, value in values.items()}
    return [as_lists(value) for value in values] if isinstance(values, list | tuple) else values


def in_order(kind: str, values: list[Any]) -> list[Any]:
    """Return values, with what C++ keeps in any order in one."""
    return [sorted(value) for value in values] if kind.startswith("std::unordered") else values


def of_kind(kind: str, value: Any) -> Any:
    """Return what ROOT has for a value of ours."""
    if kind.startswith("std::unique_ptr"):
        # As in uproot, it is a list of none or one.
        return value[0] if value else None
    if kind == "char":
        return value - 256 if value > 127 else value
    return {} if kind == "Nothing" else value
