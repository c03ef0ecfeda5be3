"""A line on standard error that says how far a verb is, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yield a function that replaces the line. The text must not contain data."""
    on_terminal = sys.stderr.isatty()

    def show(text: str) -> None:
        if on_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        show("")


def conclude(text: str) -> None:
    """Say how a verb ended whose result went to a file, on a terminal only. The text must not contain data."""
    if sys.stderr.isatty() and not sys.stdout.isatty():
        sys.stderr.write(f"{text}\n")


def bar(done: float, total: float, width: int = 24) -> str:
    """
    >>> bar(1, 4, 8), bar(0, 0, 4)
    ('[##------]  25%', '[####] 100%')
    """
    share = 1.0 if total <= 0 else min(1.0, max(0.0, done / total))
    full = int(share * width)
    return f"[{'#' * full}{'-' * (width - full)}] {int(share * 100):3d}%"


def remaining(seconds: float, done: float, total: float) -> str:
    """How long the rest takes at the speed so far; empty while that cannot be told.

    >>> remaining(60, 1, 3), remaining(5, 0, 3)
    ('about 2m0s left', '')
    """
    if done <= 0 or total <= done:
        return ""
    left_s = round(seconds * (total - done) / done)
    hours, minutes = divmod(left_s // 60, 60)
    return f"about {hours}h{minutes}m left" if hours else f"about {minutes}m{left_s % 60}s left"
