"""Rows of a segment that queries must not see: those of a deletion that has not rewritten the segment yet."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakerunner.model.time import NS_PER_S


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """The rows from `start_ns` up to, and without, `end_ns` that satisfy a condition.

    The condition is JSON. Whoever reads rows knows what it means (`query/scan/hidden.py`).
    """

    deletion_id: uuid.UUID
    start_ns: int
    end_ns: int
    condition: str

    def in_tier(self, tier_s: int) -> HiddenRows:
        """The same for rolled-up samples: whole buckets, which are open to the left and closed to the right."""
        if not tier_s:
            return self
        width_ns = tier_s * NS_PER_S
        start_ns = (self.start_ns - 1) // width_ns * width_ns + 1
        return replace(self, start_ns=start_ns, end_ns=-(-(self.end_ns - 1) // width_ns) * width_ns + 1)

    def to_json(self) -> list[Any]:
        return [str(self.deletion_id), self.start_ns, self.end_ns, self.condition]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> HiddenRows:
        deletion_id, start_ns, end_ns, condition = document
        return cls(uuid.UUID(deletion_id), int(start_ns), int(end_ns), str(condition))
