from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.fileset.urls import find_files, label_directories, split_tree
from hepcache.io.transport import is_url, location

names = st.sampled_from(["a", "b", "2018", "DY"])
paths = st.lists(names, max_size=4).map(lambda parts: "/".join(["", *parts, "file.root"]))


@given(st.lists(paths))
def test_labels_tell_directories_apart(given_paths: list[str]) -> None:
    labels = label_directories(given_paths)
    directories = [str(PurePosixPath(path).parent) for path in given_paths]
    assert len(set(zip(directories, labels, strict=True))) == len(set(directories))
    assert len(set(labels)) == len(set(directories))
    for directory, label in zip(directories, labels, strict=True):
        assert directory.endswith(label) or directory == "/"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.root", ("a.root", None)),
        ("a.root:Events", ("a.root", "Events")),
        ("a.root:dir/Events", ("a.root", "dir/Events")),
        ("root://s:1094//a.root", ("root://s:1094//a.root", None)),
        ("root://s:1094//a.root:Events", ("root://s:1094//a.root", "Events")),
        ("https://s:8443/a.root?x=1", ("https://s:8443/a.root?x=1", None)),
        ("/d/*.root:Events", ("/d/*.root", "Events")),
        ("/odd:name/a", ("/odd:name/a", None)),
    ],
)
def test_split_tree(path: str, expected: tuple[str, str | None]) -> None:
    assert split_tree(path) == expected


def test_urls_and_paths() -> None:
    assert all(map(is_url, ["root://s//a", "https://s/a", "s3://b/a", "simplecache::https://s/a"]))
    assert not any(map(is_url, ["/a", "a.root", "file:///a", "C:a", "a://b"[1:]]))


def test_location_does_not_follow_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "now.root").symlink_to(tmp_path / "first.root")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert location("now.root") == location("~/now.root") == str(tmp_path / "now.root")
    assert location("./x/../now.root") == str(tmp_path / "now.root")


def test_a_name_with_brackets_is_no_glob_where_it_exists(tmp_path: Path) -> None:
    odd = tmp_path / "odd[1]"
    odd.mkdir()
    (odd / "a[1].root").touch()
    assert find_files(str(odd)) == [(str(odd / "a[1].root"), None)]
    assert find_files(str(odd / "a[1].root")) == [(str(odd / "a[1].root"), None)]


def test_remote_globs(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/globbed/b.root": b"", "/globbed/a.root": b"", "/globbed/c.txt": b""})
    assert find_files("memory://globbed/*.root:Events") == [
        ("memory:///globbed/a.root", "Events"),
        ("memory:///globbed/b.root", "Events"),
    ]
    assert find_files("https://[::1]:80/a.root?b=1") == [("https://[::1]:80/a.root?b=1", None)]
