"""Makes a process independent of its surroundings: only the data folder needs to be writable, and the user any number.

In containers the root is often read-only, the home folder missing, and the user an id without an entry in the list of
users. Compiled kernels, temporary files, Java, Spark and PostgreSQL then find what they need under the data folder. All
of it is passed on by variables of the environment, to every process that is started from here.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

#: Says that all kernels of an installation are compiled; see `runtime/kernels.py`.
MARK = "kernels.compiled"

_PACKAGE = Path(__file__).resolve().parents[1]
#: Answers who a user is in place of the system. Debian's package is libnss-wrapper.
_USER_LIBRARY = "libnss_wrapper.so"
_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
_USER = "lakerunner"


def settle_in(data_dir: Path) -> None:
    """Use the data folder for whatever the system does not offer. A folder that cannot be written changes nothing."""
    data_dir = data_dir.absolute()
    with suppress(OSError):
        _place_temporary_files(data_dir)
        _place_home(data_dir)
        _place_user(data_dir)
        place_kernels(data_dir)


def has_user() -> bool:
    """Whether the system, or the library in its place, knows the user of this process."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return "NSS_WRAPPER_PASSWD" in os.environ
    return True


def place_kernels(data_dir: Path, package: Path = _PACKAGE) -> None:
    """Cache compiled kernels in the data folder if that is not possible beside their sources.

    Kernels that were compiled when the package was installed (`lakerunner warm`) are copied there, once for each
    installation.
    """
    if "NUMBA_CACHE_DIR" in os.environ or os.access(package, os.W_OK):
        return
    folder = data_dir / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    compiled = sorted(package.rglob("__pycache__/*.nb[ic]"))
    digest = hashlib.sha256(str(package).encode())
    for path in compiled:
        found = path.stat()
        digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    mark = folder / "installation"
    if not mark.exists() or mark.read_text() != digest.hexdigest():
        for path in compiled:
            # What somebody else compiled for himself is compiled again.
            with suppress(PermissionError):
                _copy(path, folder / cache_name(path.parents[1]) / path.name)
        with suppress(OSError):
            _copy(package / "__pycache__" / MARK, folder / MARK)
        _write(mark, digest.hexdigest())
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


def cache_name(folder: Path) -> str:
    """The name that numba gives to the cache of a folder of sources."""
    return f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"


def _place_temporary_files(data_dir: Path) -> None:
    try:
        folder = tempfile.gettempdir()
        # Without any other place, it is the folder that the process happens to be in.
        usable = os.access(folder, os.W_OK) and folder != str(Path.cwd())
    except FileNotFoundError:
        usable = False
    if not usable:
        folder = str(_private(data_dir / "tmp"))
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def _place_home(data_dir: Path) -> None:
    home = os.environ.get("HOME", "")
    if not home or not os.access(home, os.W_OK):
        os.environ["HOME"] = str(_private(data_dir / "home"))


def _place_user(data_dir: Path) -> None:
    """Let child processes find an entry for a user id that has none: PostgreSQL and Hadoop refuse to run without."""
    if has_user():
        return
    preloaded = os.environ.get("LD_PRELOAD", "")
    if _USER_LIBRARY not in preloaded:
        library = next((path for root in _LIBRARY_FOLDERS for path in sorted(Path(root).rglob(_USER_LIBRARY))), None)
        if library is None:
            return
        preloaded = f"{library}:{preloaded}".rstrip(":")
    folder = _private(data_dir / "home")
    users, groups = folder / "passwd", folder / "group"
    uid, gid = os.geteuid(), os.getegid()
    _write(users, f"{_etc('passwd')}{_USER}:x:{uid}:{gid}:Lakerunner:{os.environ['HOME']}:/bin/sh\n")
    _write(groups, f"{_etc('group')}{_USER}:x:{gid}:\n")
    os.environ |= {
        "LD_PRELOAD": preloaded,
        "NSS_WRAPPER_PASSWD": str(users),
        "NSS_WRAPPER_GROUP": str(groups),
        "USER": _USER,
        "LOGNAME": _USER,
    }


def _etc(name: str) -> str:
    with suppress(OSError):
        return (Path("/etc") / name).read_text()
    return ""


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temporary)
    temporary.replace(target)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
