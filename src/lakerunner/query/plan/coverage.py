"""Where in time the series of a rule have all rows: asked of the index together with the segments of a query."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.time import NS_PER_MS, NS_PER_S


@dataclass(frozen=True, slots=True)
class CoverageWant:
    """Where from one time to another does a version of a rule lack rows? Open at the start, closed at the end."""

    rule_id: int
    start_ns: int
    end_ns: int
    #: The version of the rule, as the catalog has it.
    rule: StoredRule | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of time in which the rule does not know all rows. Open at the start, closed at the end."""

    start_ns: int
    end_ns: int
    reason: str

    @property
    def sentence(self) -> str:
        return f"raw rows from {_time(self.start_ns)} to {_time(self.end_ns)}: {self.reason}"


def _time(time_ns: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(time_ns // NS_PER_S, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns // NS_PER_MS} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
