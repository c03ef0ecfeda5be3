"""How many examples a property is tried with: few in each `make test`, since each draws others; many by one command."""

from __future__ import annotations

import os

_TIMES = float(os.environ.get("LAKERUNNER_TEST_EXAMPLES", "1"))


def examples(number: int) -> int:
    """That number, or as many times it as `make properties` asks for."""
    return max(1, round(number * _TIMES))
