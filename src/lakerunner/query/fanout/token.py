"""The secret that the API and its workers share."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from lakerunner.model.errors import BadInput, Denied
from lakerunner.runtime.settings import Settings

_FILE = "query-worker.token"


def worker_token(settings: Settings) -> str:
    """The configured secret, or else the one in the data folder, which is created on first use.

    A user who can read the folder can read the lake's files there anyway.
    """
    if settings.query.worker_token:
        return settings.query.worker_token
    path = settings.data.dir / _FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make(path)
        return path.read_text(encoding="ascii")
    except OSError as reason:
        raise BadInput(f"cannot keep the workers' secret in {path}: {reason.strerror}", where="data.dir") from None


def check_token(given: str, expected: str) -> None:
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Denied("cannot ask this worker: the token is not its own", hint="set query.worker_token alike everywhere")


def _make(path: Path) -> None:
    """Create the file atomically and readable only by us. If two processes race, the first one's file stays."""
    if path.exists():
        return
    part = path.with_name(f"{_FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
        try:
            os.link(part, path)
        except FileExistsError:
            return
    finally:
        part.unlink()
