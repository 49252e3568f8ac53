from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hepcache.bench.frame import benchmarks, drop_page_cache, load, stdout_for_result
from hepcache.errors import ConfigurationError


@pytest.mark.parametrize("name", benchmarks())
def test_every_benchmark_is_where_the_list_says(name):
    assert callable(load(name))
    assert benchmarks()[name].summary.endswith(".")


def test_an_unknown_benchmark_is_refused():
    with pytest.raises(ConfigurationError, match="cycles"):
        load("speed")


def test_what_is_printed_meanwhile_is_no_result(capfd):
    with stdout_for_result():
        print("progress")
        os.write(1, b"low level\n")
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    print("result")
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert "low level" in err
    assert "child" in err
    assert "progress" in err


def test_the_page_cache_is_dropped_for_files_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"content")
    asked = drop_page_cache([str(path), str(tmp_path / "missing"), "root://host//file"])
    assert asked == 1
    assert path.read_bytes() == b"content"
