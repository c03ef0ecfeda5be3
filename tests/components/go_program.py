"""Programs that the suite builds with Go: once per source and machine, into the project's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.components.install_lock import install_lock
from tests.components.missing import missing

_CACHE = Path(__file__).parents[2] / ".cache"


def go_program(source: Path, name: str, timeout_s: float, *flags: str, **variables: str) -> Path:
    """Return the program of a folder of Go source, built if it is absent or its source changed.

    `name` is its place in the cache; the flags and variables are for `go build`.
    """
    text = b"".join((source / each).read_bytes() for each in ("main.go", "go.mod", "go.sum"))
    program = _CACHE / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        missing(f"cannot run {name}: go is not on PATH; install Go")
    with install_lock(program):
        return program if program.exists() else _built(source, program, timeout_s, flags, variables)


def _built(source: Path, program: Path, timeout_s: float, flags: Sequence[str], variables: Mapping[str, str]) -> Path:
    part = program.with_suffix(f".part-{os.getpid()}")
    argv = ["go", "build", "-mod=readonly", *flags, "-o", str(part), "."]
    env = {**os.environ, "GOWORK": "off", **variables}
    try:
        done = subprocess.run(argv, cwd=source, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        missing(f"cannot run {program.name}: go did not build it within {timeout_s:g} s")
    if done.returncode != 0:
        missing(f"cannot run {program.name}: go could not build it: {done.stderr.strip()[-500:]}; install Go")
    return part.rename(program)
