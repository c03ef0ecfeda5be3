"""Run the command line as a user does: as a process with output and exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return orjson.loads(self.out)


Run = Callable[..., Done]


def run_lakerunner(*args: str, env: dict[str, str] | None = None, timeout_s: float = 60.0) -> Done:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
    done = subprocess.run(
        [sys.executable, "-m", "lakerunner", *args],
        env={**inherited, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def lakerunner(database_url: str) -> Run:
    """The command, over a fresh index."""

    def run(*args: str, env: dict[str, str] | None = None) -> Done:
        return run_lakerunner(*args, env={"LAKERUNNER_INDEX_URL": database_url, **(env or {})})

    return run
