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
