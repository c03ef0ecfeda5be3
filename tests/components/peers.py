"""Find peers: third-party programs that Lakerunner is tested with. They are never built or downloaded here.

A peer is not a component of the suite: if its binary is absent, the test is skipped with a message, in CI too. Bytes
written by a real collector are stored in tests/formats/recorded, so that every machine tests at least those.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: Names a folder of binaries that is searched before PATH.
VARIABLE = "LAKERUNNER_TEST_PEERS"


def find_peer(*names: str) -> Path | None:
    """Return the first of these programs that exists."""
    folders = os.pathsep.join(filter(None, [os.environ.get(VARIABLE), os.environ.get("PATH")]))
    for name in names:
        if found := shutil.which(name, path=folders):
            return Path(found)
    return None


def peer(*names: str) -> Path:
    """Return the first of these programs that exists, or skip the test."""
    found = find_peer(*names)
    if found is not None:
        return found
    pytest.skip(f"cannot try {names[0]}: it is neither on PATH nor in the folder of {VARIABLE}")
