"""Helm's renderer and linter, built once by Go into the project's cache from helm's own packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.components.go_program import go_program

_SOURCE = Path(__file__).parent / "helm_chart"
#: It takes 130 s of CPU time where Go has compiled nothing yet.
_BUILD_TIMEOUT_S = 400


@cache
def helm() -> Path:
    """Return a program that understands `template` and `lint` as helm does."""
    # As peers are built, so that what Go has compiled for a helm is not compiled again.
    return go_program(_SOURCE, "helm/helm", _BUILD_TIMEOUT_S, "-trimpath", "-ldflags", "-s -w", CGO_ENABLED="0")
