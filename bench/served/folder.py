"""The folder of a benchmark: a temporary one, or one that is kept for the next run."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOTE = "loaded"


@contextmanager
def kept_folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        with (kept / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SystemExit(f"cannot use {kept}: another run uses it; wait, or use a copy") from None
            yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
        # As root, PostgreSQL runs as another user, which must be able to enter the folder.
        Path(name).chmod(0o755)
        yield Path(name)


def is_filled(folder: Path, contents: str) -> bool:
    """Whether the folder was loaded with what this text describes."""
    note = folder / _NOTE
    return note.exists() and note.read_text() == _fingerprint(contents)


def note_filled(folder: Path, contents: str) -> None:
    (folder / _NOTE).write_text(_fingerprint(contents))


def _fingerprint(contents: str) -> str:
    return hashlib.sha256(contents.encode()).hexdigest()
