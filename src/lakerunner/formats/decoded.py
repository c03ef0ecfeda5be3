"""What reading one object gave: its tables, and everything that did not become a row, by reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

#: Bad rows shown for one reason: enough to see what is wrong, too few to store a second copy of the object.
_SAMPLES_PER_REASON = 3
_SAMPLE_CHARS = 160


@dataclass(frozen=True, slots=True)
class Sample:
    """One refused row: where it was, and how it began."""

    where: str
    excerpt: str


@dataclass(slots=True)
class Tally:
    """Counts by reason, kept while decoding. `rejected` are rows lost, `cut` are rows that landed with less in them."""

    rejected: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def reject(self, reason: str, count: int = 1, *, where: str = "", excerpt: str = "") -> None:
        if count:
            self.rejected[reason] = self.rejected.get(reason, 0) + int(count)
            seen = self.samples.setdefault(reason, [])
            if where and len(seen) < _SAMPLES_PER_REASON:
                seen.append(Sample(where, excerpt[:_SAMPLE_CHARS]))

    def add(self, other: Tally) -> None:
        """Count what another tally has counted."""
        for reason, count in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count
        for reason, count in other.cut.items():
            self.shorten(reason, count)
        for reason, seen in other.samples.items():
            self.samples[reason] = [*self.samples.get(reason, []), *seen][:_SAMPLES_PER_REASON]

    def shorten(self, reason: str, count: int) -> None:
        if count:
            self.cut[reason] = self.cut.get(reason, 0) + int(count)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The tables by suffix, as the signal names them, in the order sent (not sorted)."""

    tables: Mapping[str, pa.Table]
    format: str
    rejected: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table], format: str, tally: Tally) -> Decoded:
        samples = {reason: tuple(seen) for reason, seen in tally.samples.items() if seen}
        return cls(tables, format, dict(tally.rejected), dict(tally.cut), samples)


def excerpt_of(data: bytes) -> str:
    """The first bytes as text that is safe to log and to store.

    >>> excerpt_of(b'{"a":\\x00')
    '{"a":\\\\x00'
    """
    return data[:_SAMPLE_CHARS].decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
