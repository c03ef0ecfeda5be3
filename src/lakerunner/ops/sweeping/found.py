"""What a sweep found and did, or would do: one line per thing, with the reason."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to delete or repair."""

    #: "expired", "segment", "orphan", "foreign", "lost", "found" or "partition".
    what: str
    reason: str
    name: str
    org_id: uuid.UUID | None = None
    signal: str | None = None
    rows: int = 0
    bytes: int = 0
    age_s: float = 0.0


#: Called with every finding.
Report = Callable[[Finding], None]


@dataclass(slots=True)
class Swept:
    """Counts and bytes by kind of finding, of one round."""

    things: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        self.things[finding.what] += 1
        self.bytes[finding.what] += finding.bytes
