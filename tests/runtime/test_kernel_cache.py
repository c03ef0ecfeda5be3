"""Processes that compile at the same time never load each other's code for other types."""

from __future__ import annotations

import multiprocessing
import multiprocessing.synchronize
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import IndexDataCacheFile

from lakerunner.runtime.kernel_cache import share_kernel_cache

_PROCESSES, _KEYS = 4, 40


@pytest.fixture(autouse=True)
def shared() -> None:
    share_kernel_cache()


def _fill(folder: str, number: int, barrier: multiprocessing.synchronize.Barrier) -> None:
    share_kernel_cache()
    files = IndexDataCacheFile(folder, "kernel", "stamp")
    barrier.wait()
    for key in range(_KEYS):
        files.save((number, key), f"code of {number} {key}")


def test_every_kernel_is_found_under_its_own_types(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    barrier = context.Barrier(_PROCESSES)
    started = [context.Process(target=_fill, args=(str(tmp_path), nth, barrier)) for nth in range(_PROCESSES)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    files = IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    for number in range(_PROCESSES):
        for key in range(_KEYS):
            assert files.load((number, key)) == f"code of {number} {key}"


def test_a_file_is_complete_before_it_is_listed(tmp_path: Path) -> None:
    class Torn(IndexDataCacheFile):
        def _save_data(self, name: str, data: object) -> None:
            raise KeyboardInterrupt

    # A file of older sources lies under the name that the next one gets.
    IndexDataCacheFile(str(tmp_path), "kernel", "old").save("types", "old code")
    with pytest.raises(KeyboardInterrupt):
        Torn(str(tmp_path), "kernel", "new").save("types", "new code")
    assert IndexDataCacheFile(str(tmp_path), "kernel", "new").load("types") is None


def test_a_kernel_that_cannot_be_stored_is_used_all_the_same(tmp_path: Path) -> None:
    IndexDataCacheFile(str(tmp_path / "missing"), "kernel", "stamp").save("types", "code")


def test_numba_loads_what_was_stored_this_way(tmp_path: Path) -> None:
    module = tmp_path / "some_kernel.py"
    module.write_text(
        "from numba import njit\nfrom lakerunner.runtime.kernel_cache import share_kernel_cache\n"
        "share_kernel_cache()\n@njit(cache=True)\ndef twice(n):\n    return 2 * n\n"
        "assert twice(2) == 4\nprint(sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))\n"
    )
    said = [
        subprocess.run([sys.executable, "-c", "import some_kernel"], cwd=tmp_path, capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [each.stdout.split() for each in said] == [["0", "1"], ["1", "0"]], said[0].stderr
    assert (tmp_path / "__pycache__" / ".kernels.lock").exists()
