"""The library that answers who a user is in place of the system: the system's own, or from Debian's package."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.components.install_lock import install_lock
from tests.components.missing import missing

_NAME, _PACKAGE = "libnss_wrapper.so", "libnss-wrapper"
_CACHE = Path(__file__).parents[2] / ".cache" / _PACKAGE
_TIMEOUT_S = 120


def user_library() -> Path:
    """Return the library, unpacked into the cache if absent. If that fails, the test is skipped, or fails in CI."""
    with install_lock(_CACHE):
        for root in (Path("/usr/lib"), _CACHE):
            if found := sorted(root.rglob(_NAME)):
                return found[0]
        return _unpacked()


def _unpacked() -> Path:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return _unavailable("there is no apt-get")
    _CACHE.mkdir(parents=True, exist_ok=True)
    for argv in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", _PACKAGE]):
        try:
            done = subprocess.run(argv, cwd=_CACHE, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return _unavailable(f"{argv[0]} took longer than {_TIMEOUT_S} s")
    archives = sorted(_CACHE.glob("*.deb"))
    if not archives:
        return _unavailable(f"apt-get could not download it: {done.stderr.strip()[-300:]}")
    subprocess.run(["dpkg-deb", "-x", archives[0], _CACHE], check=True, timeout=_TIMEOUT_S)
    return next(iter(_CACHE.rglob(_NAME)))


def _unavailable(reason: str) -> Path:
    message = f"cannot find {_NAME}: {reason}; install {_PACKAGE}"
    missing(message)
