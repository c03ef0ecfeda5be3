"""Times as people write them on the command line."""

from __future__ import annotations

import time

from lakerunner.model.errors import BadInput


def time_ns(text: str) -> int:
    """Nanoseconds of `now`, a date with a time, seconds since 1970, or a length of time before now."""
    from datetime import UTC, datetime

    from lakerunner.index.retention import read_length

    if text == "now":
        return time.time_ns()
    try:
        return int(float(text) * 1e9)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6) * 1_000
    except ValueError:
        pass
    try:
        return time.time_ns() - int(read_length(text) * 1e9)
    except BadInput:
        raise BadInput(
            f"cannot read {text[:50]!r} as a time", hint="write 2026-11-01T00:00:00Z, seconds since 1970, or 7d"
        ) from None
