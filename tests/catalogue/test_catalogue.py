from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.rootfiles import LONG_AGO, WriteTree, settle

from hepcache.catalogue.catalogue import Catalogue
from hepcache.catalogue.database import Opened
from hepcache.errors import BadFileError, CatalogueError, ConfigurationError
from hepcache.fileset import FileRecord, Fileset, FileSpec, load_fileset
from hepcache.formats.registry import probe


def only(catalogue: Catalogue, path: Path, tree: str | None = "Events") -> FileRecord:
    ((_, record),), problems = catalogue.records([FileSpec("tt", str(path), tree)])
    assert not problems
    return record


def ruin(path: Path) -> None:
    """Overwrite a file so that stat shows nothing, but opening it fails."""
    path.write_bytes(b"x" * path.stat().st_size)
    settle(path)


def test_records_are_those_of_a_probe_and_survive(write_tree: WriteTree, tmp_path: Path) -> None:
    paths = [write_tree("a.root"), write_tree("b.root", (3, 4), seed=2)]
    specs = [FileSpec("tt", str(path), "Events") for path in paths]
    probed = [(spec, probe(spec.path, spec.tree)) for spec in specs]
    for _ in range(2):
        with Catalogue(tmp_path / "c.sqlite") as catalogue:
            assert catalogue.records(specs) == (probed, {})
            assert list(catalogue.known()) == [record for _, record in probed]


def test_a_known_file_is_never_opened_again(write_tree: WriteTree, catalogue: Catalogue) -> None:
    path = write_tree()
    before = only(catalogue, path)
    ruin(path)
    assert only(catalogue, path) == before
    path.touch()
    with pytest.raises(BadFileError, match="not a ROOT file"):
        only(catalogue, path)


def test_a_changed_file_is_opened_again(write_tree: WriteTree, catalogue: Catalogue) -> None:
    before = only(catalogue, write_tree(seed=1))
    path = write_tree(seed=1, lengths=(10, 21, 5))
    os.utime(path, (LONG_AGO[0], LONG_AGO[1] + 1000))
    after = only(catalogue, path)
    assert (before.entries, after.entries) == (35, 36)
    assert before.tag != after.tag


def test_a_touched_file_keeps_its_identity(write_tree: WriteTree, catalogue: Catalogue) -> None:
    path = write_tree()
    before = only(catalogue, path)
    os.utime(path, (LONG_AGO[0], LONG_AGO[1] + 1000))
    after = only(catalogue, path)
    assert before.validator != after.validator
    assert (before.uuid, before.tag) == (after.uuid, after.tag)


def test_a_file_written_a_moment_ago_is_opened_once_more(
    write_tree: WriteTree, catalogue: Catalogue
) -> None:
    path = write_tree(settled=False, seed=1)
    only(catalogue, path)
    stamp = path.stat()
    path.write_bytes(b"x" * stamp.st_size)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(BadFileError, match="not a ROOT file"):
        only(catalogue, path)


def test_bad_files_are_named_all_at_once(
    bad_files: dict[Path, str], write_tree: WriteTree, catalogue: Catalogue
) -> None:
    good = write_tree("good.root")
    specs = [FileSpec("tt", str(path), "Events") for path in [*bad_files, good]]
    with pytest.raises(BadFileError) as caught:
        catalogue.records(specs)
    assert list(caught.value.problems) == [str(path) for path in bad_files]
    for path, reason in bad_files.items():
        assert re.search(reason, caught.value.problems[str(path)])
        assert str(path) in str(caught.value)
    found, problems = catalogue.records(specs, on_bad="skip")
    assert [spec.path for spec, _ in found] == [str(good)]
    assert problems == caught.value.problems


def test_a_bad_file_that_was_mended_is_found(
    bad_files: dict[Path, str], write_tree: WriteTree, catalogue: Catalogue
) -> None:
    path = next(path for path in bad_files if path.name == "half.root")
    with pytest.raises(BadFileError, match="truncated"):
        only(catalogue, path)
    path.write_bytes(write_tree("whole.root").read_bytes())
    assert only(catalogue, path).entries == 35


def test_a_known_file_that_is_gone_is_named(write_tree: WriteTree, catalogue: Catalogue) -> None:
    path = write_tree()
    only(catalogue, path)
    path.unlink()
    with pytest.raises(BadFileError, match="no such file"):
        only(catalogue, path)
    assert len(list(catalogue.known())) == 1


def test_one_bad_tree_leaves_the_others_of_its_file(
    write_tree: WriteTree, catalogue: Catalogue
) -> None:
    path = write_tree()
    specs = [FileSpec("a", str(path), "Events"), FileSpec("b", str(path), "Wrong")]
    found, problems = catalogue.records(specs, on_bad="skip")
    assert [spec for spec, _ in found] == specs[:1]
    assert "the trees there are: Events" in problems[str(path)]


def test_files_without_entries(write_tree: WriteTree, catalogue: Catalogue) -> None:
    specs = [
        FileSpec("tt", str(write_tree("none.root", ())), "Events"),
        FileSpec("tt", str(write_tree("some.root")), "Events"),
    ]
    found, problems = catalogue.records(specs)
    assert [record.entries for _, record in found] == [0, 35]
    assert not problems


def test_order_repetition_and_spelling(
    write_tree: WriteTree, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tree("a.root")
    monkeypatch.chdir(path.parent)
    specs = [
        FileSpec("x", "a.root", "Events"),
        FileSpec("y", str(path), "Events"),
        FileSpec("x", path.as_uri(), "Events"),
        FileSpec("x", "a.root", "Events"),
    ]
    found, _ = catalogue.records(specs)
    assert [spec for spec, _ in found] == specs
    assert {record.path for _, record in found} == {str(path)}
    assert len(list(catalogue.known())) == 1


def test_a_name_that_is_not_utf8(write_tree: WriteTree, catalogue: Catalogue) -> None:
    path = write_tree().rename(os.fsdecode(os.fsencode(write_tree("d/x")).replace(b"x", b"\xe9")))
    assert only(catalogue, path).entries == 35
    ruin(path)
    assert only(catalogue, path).path == str(path)
    assert catalogue.forget([str(path)]) == 1


def test_real_files_and_their_table(shared_data: Path, catalogue: Catalogue) -> None:
    fileset = load_fileset(shared_data / "nanoaod", treename="Events")
    found, problems = catalogue.records(fileset)
    assert not problems
    assert sum(record.entries for _, record in found) == 1290
    assert catalogue.records(fileset)[0] == found
    assert "1,290" in repr(fileset.known(found))


def test_wrong_arguments_are_refused(catalogue: Catalogue) -> None:
    with pytest.raises(ConfigurationError, match="on_bad: expected raise or skip"):
        catalogue.records([], on_bad="ignore")  # type: ignore[arg-type]
    assert catalogue.records([]) == ([], {})


def test_forget(write_tree: WriteTree, catalogue: Catalogue, tmp_path: Path) -> None:
    names = ["d/a.root", "d/b.root", "d[1]/c.root", "e/d.root", "dd/e.root"]
    specs = [FileSpec("tt", str(write_tree(name)), "Events") for name in names]
    catalogue.records(specs)

    def left() -> list[str]:
        return sorted(str(Path(r.path).relative_to(tmp_path)) for r in catalogue.known())

    assert catalogue.forget([f"{tmp_path}/d/a.root"]) == 1
    assert catalogue.forget([f"{tmp_path}/d[1]"]) == 1
    assert left() == ["d/b.root", "dd/e.root", "e/d.root"]
    assert catalogue.forget([f"{tmp_path}/d"]) == 1
    assert catalogue.forget([f"{tmp_path}/*/d.root"]) == 1
    assert left() == ["dd/e.root"]
    assert catalogue.forget([f"{tmp_path}/nothing"]) == 0
    assert catalogue.forget() == 1
    assert left() == []


def test_a_row_whose_checksum_disagrees_is_unknown(
    write_tree: WriteTree, catalogue: Catalogue
) -> None:
    path = write_tree()
    before = only(catalogue, path)
    change = "UPDATE files SET facts = replace(facts, ?, ?)"
    catalogue._database.execute(change, ('"entries":35', '"entries":36'))
    ((facts,),) = catalogue._database.execute("SELECT facts FROM files")
    assert '"entries":36' in facts
    assert list(catalogue.known()) == []
    assert only(catalogue, path) == before
    catalogue.blob_put("kind", "key", b"data")
    catalogue._database.execute("UPDATE blobs SET data = x'00'")
    assert catalogue.blob_get("kind", "key") is None


def test_blobs(catalogue: Catalogue) -> None:
    assert catalogue.blob_get("form", "a") is None
    catalogue.blob_put("form", "a", b"1")
    catalogue.blob_put("form", "a", b"\x00" * 100_000)
    catalogue.blob_put("title", "a", b"")
    assert catalogue.blob_get("form", "a") == b"\x00" * 100_000
    assert catalogue.blob_get("title", "a") == b""


def test_a_full_disk_costs_only_the_memory(write_tree: WriteTree, catalogue: Catalogue) -> None:
    path = write_tree(lengths=tuple([1] * 3000))  # so many clusters fill several pages
    catalogue._database.execute("PRAGMA journal_mode=DELETE")
    (pages,) = catalogue._database.execute("PRAGMA page_count")[0]
    catalogue._database.execute(f"PRAGMA max_page_count={pages}")
    with pytest.warns(UserWarning, match=r"not remembered: .*full"):
        record = only(catalogue, path)
    assert record.entries == 3000
    with pytest.raises(CatalogueError, match="check the disk's space"):
        catalogue.blob_put("kind", "key", bytes(100_000))
    catalogue._database.execute("PRAGMA max_page_count=100000")
    assert only(catalogue, path) == record
    assert list(catalogue.known()) == [record]


def test_it_travels_as_its_path_and_reopens(catalogue: Catalogue) -> None:
    catalogue.blob_put("kind", "key", b"data")
    with pickle.loads(pickle.dumps(catalogue)) as other:
        assert other.blob_get("kind", "key") == b"data"
    catalogue.close()
    catalogue.close()
    assert catalogue.blob_get("kind", "key") == b"data"
    assert repr(catalogue) == f"Catalogue({str(catalogue.path)!r})"


def test_threads_share_one_catalogue(write_tree: WriteTree, catalogue: Catalogue) -> None:
    fileset = Fileset(
        FileSpec("tt", str(write_tree(f"{i}.root", seed=i)), "Events") for i in range(4)
    )
    expected = [probe(s.path, s.tree) for s in fileset]
    results: list[list[FileRecord]] = []

    def survey() -> None:
        results.append([record for _, record in catalogue.records(fileset)[0]])

    threads = [threading.Thread(target=survey) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_an_interrupted_survey_keeps_what_it_has(
    write_tree: WriteTree, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [FileSpec("tt", str(write_tree(f"{i}.root", seed=i)), "Events") for i in range(3)]

    def interrupted(items: Iterable[object], *args: object, **options: object) -> object:
        for count, item in enumerate(items):
            if count == 2:
                raise KeyboardInterrupt
            yield item

    with monkeypatch.context() as patch:
        patch.setattr("hepcache.catalogue.catalogue.track", interrupted)
        with pytest.raises(KeyboardInterrupt):
            catalogue.records(specs)
    assert len(list(catalogue.known())) >= 2


def _race(
    number: int,
    path: Path,
    files: list[str],
    start: threading.Barrier,
    report: Callable[[object], None],
) -> None:
    warnings.simplefilter("default")  # one of them will find the damage, and say so
    try:
        start.wait(60)
        with Catalogue(path) as catalogue:
            specs = [FileSpec("tt", file, "Events") for file in files]
            found, problems = catalogue.records(specs)
            for i in range(30):
                catalogue.blob_put("shared", f"{i}", f"{i}".encode() * 100)
                catalogue.blob_put(f"own {number}", f"{i}", b"x" * 100)
                seen = catalogue.blob_get("shared", f"{i}")
                assert seen == f"{i}".encode() * 100, seen
        report((number, [record.tag for _, record in found], problems))
    except BaseException as error:
        report((number, repr(error), {}))


@pytest.mark.parametrize("state", ["new", "damaged", "rollback journal"])
def test_processes_race(
    state: str, write_tree: WriteTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "raced.sqlite"
    files = [str(write_tree(f"{i}.root", seed=i)) for i in range(3)]
    tags = [probe(file, "Events").tag for file in files]
    if state == "damaged":
        with Catalogue(path) as catalogue:
            for i in range(100):
                catalogue.blob_put("old", f"{i}", bytes(1000))
        data = path.read_bytes()
        path.write_bytes(data[:100] + os.urandom(len(data) - 100))
    if state == "rollback journal":
        monkeypatch.setattr("hepcache.catalogue.database.on_local_volume", lambda directory: False)
    # A fork inherits the patch above; the parent has no other threads here.
    context = multiprocessing.get_context("fork")
    start, queue = context.Barrier(6), context.SimpleQueue()
    racers = [
        context.Process(target=_race, args=(n, path, files, start, queue.put)) for n in range(6)
    ]
    for racer in racers:
        racer.start()
    results = sorted((queue.get() for _ in racers), key=lambda result: result[0])
    for racer in racers:
        racer.join()
    assert results == [(n, tags, {}) for n in range(6)]
    with Catalogue(path) as catalogue:
        assert catalogue._database.execute("PRAGMA integrity_check") == [("ok",)]
        assert {record.tag for record in catalogue.known()} == set(tags)
        for n in range(6):
            assert all(catalogue.blob_get(f"own {n}", f"{i}") for i in range(30))
    assert len(list(tmp_path.glob("raced.sqlite.damaged-*"))) == (state == "damaged")


def test_a_forked_child_opens_the_file_anew(catalogue: Catalogue) -> None:
    catalogue.blob_put("kind", "key", b"data")
    inherited = catalogue._database._opened
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child() -> None:
        queue.put(catalogue.blob_get("kind", "key"))
        queue.put(catalogue._database._opened is inherited)
        catalogue.blob_put("kind", "key", b"child's")

    process = context.Process(target=child)
    process.start()
    assert queue.get() == b"data"
    assert queue.get() is False
    process.join()
    assert catalogue.blob_get("kind", "key") == b"child's"
    assert isinstance(inherited, Opened)
