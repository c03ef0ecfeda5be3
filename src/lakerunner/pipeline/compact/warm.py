"""Loads the compiled kernels of compaction's tasks."""

from __future__ import annotations

from lakerunner.store import needles


def warm() -> None:
    needles.warm()
