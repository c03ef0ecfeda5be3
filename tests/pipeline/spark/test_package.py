"""The archive for executors runs where nothing but a shell is."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from lakerunner import __version__
from lakerunner.model.errors import BadInput
from lakerunner.pipeline.spark.package import write_package

_ASK = (
    "import lakerunner, lakerunner.model.errors, xxhash, sys;"
    "print(lakerunner.__version__, lakerunner.__file__, xxhash.__file__, sys.prefix)"
)


def test_the_archive_has_its_own_python_and_packages(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar"
    # Only one small dependency: all of them have hundreds of MB.
    assert write_package(archive, root="xxhash") == archive.stat().st_size
    unpacked = tmp_path / "elsewhere"
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="fully_trusted")
    done = subprocess.run(
        [unpacked / "bin" / "python", "-c", _ASK], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    version, *places = done.stdout.split()
    assert version == __version__
    assert all(place.startswith(str(unpacked)) for place in places), places


def test_a_name_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must end with"):
        write_package(tmp_path / "env.zip")
