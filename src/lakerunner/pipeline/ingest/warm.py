"""Loads the compiled kernels of ingest's tasks."""

from __future__ import annotations

from lakerunner.formats import fingerprints, levels
from lakerunner.store import needles


def warm() -> None:
    for module in (fingerprints, levels, needles):
        module.warm()
