"""Programs of others that Lakerunner is tried with: found, never built or fetched here.

A peer is no component of the suite: where its binary is absent the test is skipped with a message, in CI too. The bytes
that a real collector wrote are kept in tests/formats/recorded, so that every machine reads those at least.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: A folder of binaries, looked into before PATH.
VARIABLE = "LAKERUNNER_TEST_PEERS"


def find_peer(*names: str) -> Path | None:
    """The first of these programs that is there."""
    folders = os.pathsep.join(filter(None, [os.environ.get(VARIABLE), os.environ.get("PATH")]))
    for name in names:
        if found := shutil.which(name, path=folders):
            return Path(found)
    return None


def peer(*names: str) -> Path:
    """The same for a test, which is skipped where there is none."""
    found = find_peer(*names)
    if found is not None:
        return found
    pytest.skip(f"cannot try {names[0]}: it is neither on PATH nor in the folder of {VARIABLE}")
