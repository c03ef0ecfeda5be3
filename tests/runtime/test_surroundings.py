"""Where compiled kernels are cached."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from numba.core.caching import UserProvidedCacheLocator

from lakerunner.runtime import surroundings
from lakerunner.runtime.surroundings import cache_name, place_kernels


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that cannot be written, with one compiled kernel."""
    compiled = tmp_path / "package" / "model" / "__pycache__" / "samples.py311.nbi"
    compiled.parent.mkdir(parents=True)
    compiled.write_bytes(b"kernel")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(surroundings.os, "access", lambda path, mode: "package" not in str(path))
    return tmp_path / "package"


def test_the_name_of_a_cache_is_numbas() -> None:
    source = Path(__file__)
    assert cache_name(source.parent) == UserProvidedCacheLocator.get_suitable_cache_subpath(str(source))


def test_kernels_of_the_installation_are_copied_once(package: Path, tmp_path: Path) -> None:
    place_kernels(tmp_path / "data", package)
    copy = tmp_path / "data" / "kernels" / cache_name(package / "model") / "samples.py311.nbi"
    assert copy.read_bytes() == b"kernel"
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(tmp_path / "data" / "kernels")
    copy.write_bytes(b"kernel with one more type")
    place_kernels(tmp_path / "data", package)
    assert copy.read_bytes() == b"kernel with one more type"
    del os.environ["NUMBA_CACHE_DIR"]
    (package / "model" / "__pycache__" / "samples.py311.nbi").write_bytes(b"the next release")
    place_kernels(tmp_path / "data", package)
    assert copy.read_bytes() == b"the next release"


def test_a_package_that_can_be_written_keeps_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    place_kernels(tmp_path / "data", tmp_path)
    assert "NUMBA_CACHE_DIR" not in os.environ
