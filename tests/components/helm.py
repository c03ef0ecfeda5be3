"""Helm's renderer and linter, built once by Go into the project's cache from helm's own packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.components.go_program import go_program

_SOURCE = Path(__file__).parent / "helm_chart"
_BUILD_TIMEOUT_S = 400


@cache
def helm() -> Path:
    """Return a program that understands `template` and `lint` as helm does."""
    return go_program(_SOURCE, "helm", _BUILD_TIMEOUT_S)
