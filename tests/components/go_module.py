"""Files of published Go modules, fetched once into Go's own cache: projects publish schemas beside their code."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.components.missing import missing

_FETCH_TIMEOUT_S = 120


@cache
def go_module(name: str, version: str, checksum: str) -> Path:
    """Return the folder of that version, whose content has that checksum (as go.sum has it)."""
    if shutil.which("go") is None:
        missing(f"cannot read {name}: go is not on PATH; install Go")
    argv = ["go", "mod", "download", "-json", f"{name}@{version}"]
    try:
        done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        missing(f"cannot read {name}: go did not fetch it within {_FETCH_TIMEOUT_S} s")
    if done.returncode != 0:
        missing(f"cannot read {name}: go could not fetch it: {(done.stdout + done.stderr).strip()[-500:]}")
    found = json.loads(done.stdout)
    assert found["Sum"] == checksum, f"{name} {version} is {found['Sum']}, and not what was looked at"
    return Path(found["Dir"])
