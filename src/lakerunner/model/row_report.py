"""What became of rows that were not stored as sent: how many, why, and a few of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Effect(enum.StrEnum):
    #: The row was not stored.
    REJECTED = "rejected"
    #: The row was stored, but a value was shortened, replaced or left out.
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Sample:
    """One such row: its position in the object, and its first characters."""

    where: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class RowReport:
    """The rows of one object that share an effect and a reason. Reasons are short words, such as `bad_json`."""

    effect: Effect
    reason: str
    rows: int
    samples: tuple[Sample, ...] = ()
