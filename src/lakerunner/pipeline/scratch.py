"""Folders in which a task keeps copies of its inputs and its output before they are uploaded."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Folders that a killed task left behind are removed after this time.
_KEEP_S = 86_400.0


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder that is removed at the end. Old ones of killed tasks with the same prefix are removed first."""
    parent.mkdir(0o700, parents=True, exist_ok=True)
    for left in parent.glob(prefix + "*"):
        if left.stat().st_mtime < time.time() - _KEEP_S:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
