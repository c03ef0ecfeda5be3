"""The arrows of deploy/connections.yaml, for tests that compare them with what roles really do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
CONNECTIONS: dict[str, Any] = yaml.safe_load((DEPLOY / "connections.yaml").read_text())
_SIGNALS = ("-logs", "-metrics", "-traces")


def peers_of(role: str) -> frozenset[str]:
    """What a role may call. A role of one signal calls what its stage calls."""
    for ending in _SIGNALS:
        role = role.removesuffix(ending)
    return frozenset(CONNECTIONS["calls"][role])


def callers_of(role: str) -> frozenset[str]:
    """Which roles may call a role."""
    return frozenset(caller for caller, peers in CONNECTIONS["calls"].items() if role in peers)
