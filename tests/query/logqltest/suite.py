"""A suite: a folder with log records as OTLP JSON, and cases with the answers that a real Loki gave."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Names the folder of a suite for the tests; without it, the folder beside the repository is used.
VARIABLE = "LAKERUNNER_TEST_LOGQLTEST"
_DATA = "data.otlp.jsonl"
_HERE = Path(__file__).parent
_QUERY_PARAMETERS = ("query", "time", "start", "end", "step", "limit", "direction")
_SORTED = re.compile(r"\s*sort(_desc)?\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Case:
    """One request and the recorded answer."""

    case_id: str
    method: str
    path: str
    params: Mapping[str, Any]
    #: Everything that the suite recorded about the case.
    recorded: Mapping[str, Any]

    @property
    def is_query(self) -> bool:
        """Whether it is a query, not a request to one of the other endpoints."""
        return "kind" in self.recorded

    @property
    def is_quirk(self) -> bool:
        return "quirk" in self.recorded

    @property
    def is_ordered(self) -> bool:
        """Whether the query itself sorts, so that the order of the series counts."""
        kind, query = self.recorded.get("kind"), str(self.params.get("query", ""))
        return kind == "instant" and _SORTED.match(query) is not None

    def shown(self) -> str:
        return str(self.params.get("query")) if self.is_query else f"{self.method} {self.path} {dict(self.params)}"


@dataclass(frozen=True, slots=True)
class Suite:
    folder: Path

    @property
    def requests(self) -> list[bytes]:
        """Export requests, in the order in which they were sent."""
        return (self.folder / _DATA).read_bytes().splitlines()

    def topics(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.jsonl") if path.name != _DATA)


def cases_of(path: Path) -> list[Case]:
    with path.open(encoding="utf-8") as lines:
        return [_case(json.loads(line)) for line in lines]


def _case(recorded: dict[str, Any]) -> Case:
    if "kind" not in recorded:
        params = recorded.get("params", {})
        return Case(recorded["id"], recorded["method"], recorded["path"], params, recorded)
    path = "/loki/api/v1/query" if recorded["kind"] == "instant" else "/loki/api/v1/query_range"
    params = {name: recorded[name] for name in _QUERY_PARAMETERS if name in recorded}
    return Case(recorded["id"], "GET", path, params, recorded)


def differences() -> dict[str, str]:
    """Cases whose answer differs on purpose, and why."""
    lines = (_HERE / "differences.txt").read_text().splitlines()
    pairs = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {words[0]: words[1] for words in pairs}


def find_suite() -> Suite | None:
    """The suite for the tests: it is beside the repository, not in it."""
    if named := os.environ.get(VARIABLE):
        return Suite(Path(named))
    for parent in _HERE.parents:
        if (parent / "shared" / "logqltest" / _DATA).is_file():
            return Suite(parent / "shared" / "logqltest")
    return None
