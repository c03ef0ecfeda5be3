"""A suite: a folder with traces as OTLP JSON, and cases with the answers that a real Tempo gave.

The folder has the scripts that send its data and define when two answers are equal. They are called, not copied.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

#: Names the folder of a suite for the tests; without it, the folder beside the repository is used.
VARIABLE = "LAKERUNNER_TEST_TRACEQLTEST"
_DATA = "data.otlp.jsonl"
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Suite:
    folder: Path

    def module(self, name: str) -> ModuleType:
        """A script of the suite."""
        found = sys.modules.get(name)
        if found is None:
            sys.path.insert(0, str(self.folder))
            spec = importlib.util.spec_from_file_location(name, self.folder / f"{name}.py")
            assert spec is not None and spec.loader is not None
            found = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found)
        return found

    def topics(self) -> list[Path]:
        return sorted((self.folder / "cases").glob("*.jsonl"))

    def requests(self, t0_s: int) -> list[bytes]:
        """Export requests whose times are shifted to begin at `t0_s`."""
        lines = (self.folder / _DATA).read_text(encoding="utf-8").splitlines()
        return [json.dumps(_shifted(json.loads(line), t0_s * 1_000_000_000)).encode() for line in lines]


def _shifted(document: Any, t0_ns: int) -> Any:
    if isinstance(document, list):
        return [_shifted(each, t0_ns) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        key: str(int(value) + t0_ns) if key.endswith("UnixNano") else _shifted(value, t0_ns)
        for key, value in document.items()
    }


def recent_t0() -> int:
    """A whole hour, two hours ago."""
    return int(time.time()) // 3600 * 3600 - 7200


def cases_of(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def differences() -> dict[str, str]:
    """Cases whose answer differs on purpose, and why."""
    lines = (_HERE / "differences.txt").read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {words[0]: words[1] for words in pairs}


def shown(case: dict[str, Any]) -> str:
    asked = next((case[key] for key in ("q", "tag", "trace", "path") if key in case), "")
    return f"{case['kind']} {asked!r} {case['params']}"


def find_suite() -> Suite | None:
    """The suite for the tests: it is beside the repository, not in it."""
    if named := os.environ.get(VARIABLE):
        return Suite(Path(named))
    for parent in _HERE.parents:
        if (parent / "shared" / "traceqltest" / _DATA).is_file():
            return Suite(parent / "shared" / "traceqltest")
    return None
