from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import awkward as ak
import numpy as np
import pytest
import uproot

from hepcache.formats.ttree.baskets import Assembly, Basket, BasketError, decode, item_count, plan

NUMBERS = ["event", "met", "weight", "trigger", "nJet", "Jet_pt", "Jet_flag", "Jet_id"]
MARGIN = 4096


def decoded(basket: Basket, raw: memoryview, dtype: np.dtype) -> np.ndarray:
    """Return a basket's numbers, and check that nothing beside them was written."""
    count = item_count(basket, raw, dtype)
    room = np.full(count * dtype.itemsize + 2 * MARGIN, 0xA5, np.uint8)
    out = room[MARGIN : len(room) - MARGIN].view(dtype.newbyteorder("="))
    try:
        decode(basket, raw, dtype, out)
    finally:
        assert (room[:MARGIN] == 0xA5).all()
        assert (room[len(room) - MARGIN :] == 0xA5).all()
    return out


def raw_baskets(path: Path, name: str) -> list[tuple[Basket, bytes, np.dtype]]:
    with uproot.open(path) as file:
        branch = file["Events"][name]
        made = plan(branch, 0, branch.num_entries)
    assert made is not None
    data = path.read_bytes()
    return [(one, data[one.seek : one.seek + one.nbytes], made.dtype) for one in made.baskets]


def branch_dtype(branch: uproot.TBranch) -> np.dtype:
    interpretation = branch.interpretation
    return getattr(interpretation, "content", interpretation).from_dtype


@pytest.mark.parametrize("name", NUMBERS)
def test_baskets_equal_uproots(tree_path: Path, name: str) -> None:
    ours = [
        decoded(basket, memoryview(raw), dtype)
        for basket, raw, dtype in raw_baskets(tree_path, name)
    ]
    with uproot.open(tree_path) as file:
        branch = file["Events"][name]
        theirs = [
            np.frombuffer(branch.basket(i).data, branch_dtype(branch)).astype(ours[i].dtype)
            for i in range(branch.num_baskets)
        ]
    assert len(ours) == 3
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine.tobytes() == expected.tobytes()


def test_basket_of_another_branch_is_refused(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    foreign = Basket("pt", basket.seek, basket.nbytes, basket.entries)
    with pytest.raises(BasketError, match=r"expected .*TBasket"):
        decoded(foreign, memoryview(raw), dtype)


def test_basket_with_other_entries_is_refused(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    with pytest.raises(BasketError, match=r"expected .*TBasket"):
        decoded(Basket("met", basket.seek, basket.nbytes, 17), memoryview(raw), dtype)


def test_truncated_basket_is_refused(tree_path: Path) -> None:
    for basket, raw, dtype in raw_baskets(tree_path, "Jet_pt"):
        for keep in (0, 10, 60, len(raw) // 2, len(raw) - 1):
            with pytest.raises(BasketError):
                decoded(basket, memoryview(raw[:keep]), dtype)


def test_a_basket_is_whole_or_refused_whatever_byte_is_lost(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "met")[0]
    for keep in range(0, len(raw), 7):
        with pytest.raises(BasketError):
            decoded(basket, memoryview(raw[:keep] + raw[keep + 1 :]), dtype)


@pytest.mark.parametrize("known", ["all", "none", "some"])
@pytest.mark.parametrize("name", NUMBERS)
def test_column_is_whole_in_whatever_order_baskets_come(
    tree_path: Path, name: str, known: str
) -> None:
    with uproot.open(tree_path) as file:
        branch = file["Events"][name]
        made = plan(branch, 0, branch.num_entries)
        array = branch.array(library="ak")
        expected = ak.to_numpy(ak.flatten(array, axis=None))
    raw = [memoryview(data) for _, data, _ in raw_baskets(tree_path, name)]
    column = Assembly(made)
    for number in column.missing_counts[: {"all": None, "none": 0, "some": 1}[known]]:
        column.note_count(number, item_count(made.baskets[number], raw[number], made.dtype))
    for number in (2, 0, 1):
        column.decode(number, raw[number])
    assert column.result().tobytes() == expected.tobytes()
    assert column.result().dtype == expected.dtype


def test_basket_with_another_number_of_items_is_refused(zstd_path: Path) -> None:
    basket, raw, dtype = raw_baskets(zstd_path, "Jet_pt")[0]
    count = item_count(basket, memoryview(raw), dtype)
    for wrong in (count - 1, count + 1, 0):
        out = np.empty(wrong, dtype.newbyteorder("="))
        with pytest.raises(BasketError, match=f"{count} numbers where {wrong} are expected"):
            decode(basket, memoryview(raw), dtype, out)


def mutated(raw: bytes, random: Random) -> bytes:
    """Return a basket to which something has happened that happens to files."""
    data = bytearray(raw)
    kind = random.choice(["flip", "flip", "header", "cut", "lose", "repeat", "zero", "swap"])
    place = random.randrange(len(data))
    if kind == "flip":
        for _ in range(random.choice([1, 1, 2, 20])):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif kind == "header":  # sizes: of the key, of what is in it, and of the blocks
        place = random.randrange(min(len(data), 160))
        data[place] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    elif kind == "cut":
        del data[place:]
    elif kind == "lose":
        del data[place : place + random.randrange(1, 64)]
    elif kind == "repeat":
        data[place:place] = data[place : place + random.randrange(1, 64)]
    elif kind == "zero":
        end = min(place + random.choice([1, 4, 512]), len(data))
        data[place:end] = bytes(end - place)
    else:
        other = random.randrange(len(data))
        data[place], data[other] = data[other], data[place]
    return bytes(data)


def damage_and_read(path: Path, times: int, seed: int) -> int:
    """Read damaged baskets; return how many were refused. What is not has the right length."""
    random, refused = Random(seed), 0
    baskets = [found for name in NUMBERS for found in raw_baskets(path, name)]
    for _ in range(times):
        basket, raw, dtype = random.choice(baskets)
        damaged = memoryview(mutated(raw, random))
        whole = item_count(basket, memoryview(raw), dtype)
        count = None
        with suppress(BasketError):
            count = len(decoded(basket, damaged, dtype))
        if count is None:
            with pytest.raises(BasketError, match=f"basket of '{basket.branch}' at {basket.seek}"):
                decoded(basket, damaged, dtype)
            refused += 1
        else:
            # Only a damaged count of numbers changes it, and the counters tell that.
            assert count == whole or damaged[:160] != raw[:160]
    return refused


def test_damaged_baskets_are_refused_or_read_within_their_bounds(tree_path: Path) -> None:
    assert damage_and_read(tree_path, 250, seed=1) > 50


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_damaged_baskets_end_no_process(tree_path: Path) -> None:
    # Allocators that notice what is written beside an allocation, and fill what is freed.
    checked = {"PYTHONMALLOC": "debug", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from test_baskets import damage_and_read;"
        "print(damage_and_read(Path(sys.argv[2]), 10_000, seed=2))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, Path(__file__).parent, tree_path],
        env={**os.environ, **checked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2_000
