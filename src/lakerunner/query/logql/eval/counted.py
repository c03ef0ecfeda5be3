"""Entries that were counted where they are stored, for queries that only count them."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.query.logql.entries import Entries, Ints


@dataclass(frozen=True, slots=True)
class CountedEntries:
    """There are `counts[n, j]` entries like number n in the interval `first` + j. Ignore the times of `entries`."""

    entries: Entries
    counts: Ints
    first: int

    def __len__(self) -> int:
        return len(self.entries)
