"""Real RNTuple files: every column, bit for bit what uproot reads, in a file and as objects."""

import awkward as ak
import pytest
import uproot

from hepcache.objectstore import open_store
from hepcache.rntuple import MAPPINGS, NTuple, open_in_file, put_files
from hepcache.rntuple.arrays import column_numbers
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.write import ObjectWriter, WriteOptions

FILES = ["nano_dy_rntuple.root", "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root"]


def buffers(array):
    form, length, found = ak.to_buffers(ak.to_packed(array))
    return (
        form.type,
        length,
        {key: (values.dtype.str, values.tobytes()) for key, values in found.items()},
    )


@pytest.fixture(scope="module", params=FILES)
def path(request, shared_data):
    return shared_data / "nanoaod" / request.param


@pytest.fixture(scope="module")
def oracle(path):
    # uproot takes 15 s to find its way in an RNTuple of 1499 fields, so it is opened once.
    with uproot.open(path) as file:
        tree = file["Events"]
        yield tree.arrays(), tree


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nano_tree", "nano_dy", "nano_tt_v15"])
def test_every_branch_of_a_converted_tree_is_what_uproot_reads(name, shared_data):
    path = shared_data / "nanoaod" / f"{name}.root"
    store = open_store(f"ntpl+mem://converted/{name}")
    put = put_files(store, [path], convert=True)
    with uproot.open(path) as file:
        expected = file["Events"].arrays()
    found = NTuple(store).arrays()
    assert (put.entries, sorted(found.fields)) == (len(expected), sorted(expected.fields))
    assert put.nbytes == sum(size for _, size in store.list(".pages/"))
    wrong = [name for name in expected.fields if buffers(found[name]) != buffers(expected[name])]
    assert not wrong


def copied(ntuple, uri, mapping):
    """Copy an ntuple's sealed pages, as they are."""
    metadata = ntuple.metadata
    store = open_store(uri)
    writer = ObjectWriter(store, metadata.header, WriteOptions(mapping=mapping))
    for number, cluster in enumerate(metadata.clusters):
        writer.write_cluster(cluster.entries, sealed_cluster(ntuple.store, metadata, number))
    writer.commit(metadata.footer.extension)
    return NTuple(store)


def test_every_column_is_what_uproot_reads(path, oracle):
    expected, _ = oracle
    with open_in_file(str(path), "Events") as ntuple:
        found = ntuple.arrays()
        assert ntuple.names == expected.fields
        assert buffers(found) == buffers(expected)
        # Every column of the file was looked at.
        numbers = {n for name in ntuple.names for n in column_numbers(ntuple.form(name)[0])}
        assert numbers == {column.number for column in ntuple.metadata.schema.columns}


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_copies_as_objects_are_the_same(path, oracle, mapping):
    expected, _ = oracle
    with open_in_file(str(path), "Events") as ntuple:
        copy = copied(ntuple, f"ntpl+mem://real/{path.stem}/{mapping}", mapping)
    assert buffers(copy.arrays()) == buffers(expected)


def test_entry_ranges(path, oracle):
    expected, _ = oracle
    with open_in_file(str(path), "Events") as ntuple:
        names = ntuple.names[-25:]
        for low, high in [(0, 1), (3, 17), (39, 40), (0, 0), (10, 40)]:
            found = ntuple.arrays(names, low, high)
            assert found.tolist() == expected[names][low:high].tolist()


def test_uproot_says_the_same_of_fields(path, oracle):
    """The model without a file answers as the one with a file does."""
    _, theirs = oracle
    with open_in_file(str(path), "Events") as ntuple:
        ours = ntuple.metadata.schema.model
        assert ours.keys() == theirs.keys()
        assert ours.typenames() == theirs.typenames()
        assert ours.num_entries == theirs.num_entries
        for name in ntuple.names[:50]:
            assert ours[name].to_akform() == theirs[name].to_akform()
