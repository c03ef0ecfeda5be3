"""The result of decoding one object: its tables, and counts by reason of everything that did not become a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.row_report import Effect, RowReport, Sample
from lakerunner.model.signal import Table

#: Samples kept per reason: enough to see what is wrong, too few to store a second copy of the object.
_SAMPLES_PER_REASON = 3
_SAMPLE_CHARS = 160


@dataclass(slots=True)
class Tally:
    """Counts by reason while decoding. `rejected` counts rows lost.

    `cut` counts what was stored, but not as it was sent: shortened, or with the time of its object (`no_time`).
    """

    rejected: dict[str, int] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def reject(self, reason: str, count: int = 1, *, where: str = "", excerpt: str = "") -> None:
        if count:
            self.rejected[reason] = self.rejected.get(reason, 0) + int(count)
            self._keep(reason, where, excerpt)

    def reject_rows(self, reason: str, rows: npt.NDArray[np.bool_]) -> None:
        """Reject the rows of a mask; the samples are their numbers."""
        at = np.flatnonzero(rows)
        self.reject(reason, len(at))
        for row in at[:_SAMPLES_PER_REASON].tolist():
            self._keep(reason, f"record {row + 1}", "")

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for reason, count in other.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count
        for reason, count in other.cut.items():
            self.shorten(reason, count)
        for reason, seen in other.samples.items():
            self.samples[reason] = [*self.samples.get(reason, []), *seen][:_SAMPLES_PER_REASON]

    def shorten(self, reason: str, count: int, *, where: str = "", excerpt: str = "") -> None:
        if count:
            self.cut[reason] = self.cut.get(reason, 0) + int(count)
            self._keep(reason, where, excerpt)

    def _keep(self, reason: str, where: str, excerpt: str) -> None:
        seen = self.samples.setdefault(reason, [])
        if (where or excerpt) and len(seen) < _SAMPLES_PER_REASON:
            seen.append(Sample(_printable(where), _printable(excerpt)))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Tables by their suffix in the signal. Rows are in the order in which they were sent, not sorted."""

    tables: Mapping[str, pa.Table]
    format: str
    rejected: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table], format: str, tally: Tally) -> Decoded:
        samples = {reason: tuple(seen) for reason, seen in tally.samples.items() if seen}
        return cls(tables, format, dict(tally.rejected), dict(tally.cut), samples)

    def reports(self) -> tuple[RowReport, ...]:
        """The counts and samples, by effect and reason."""
        counts = ((Effect.REJECTED, self.rejected), (Effect.CHANGED, self.cut))
        return tuple(
            RowReport(effect, reason, rows, self.samples.get(reason, ()))
            for effect, by_reason in counts
            for reason, rows in by_reason.items()
        )


def table_of(description: Table, columns: Mapping[str, pa.Array], row_count: int) -> pa.Table:
    """Build a table of the model from its fixed columns, cast to their types; missing columns are null."""
    arrays = []
    for column in description.columns:
        array = columns.get(column.name)
        if array is None:
            array = pa.nulls(row_count, column.type)
        elif array.type != column.type:
            array = array.cast(column.type)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=description.schema())


def _printable(text: str) -> str:
    r"""Return the first characters, with those escaped that a terminal would act upon or a database refuses.

    >>> _printable("a[/red]" + chr(27) + "[2J")
    'a[/red]\\x1b[2J'
    """
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text[:_SAMPLE_CHARS]
    )
    return shown[:_SAMPLE_CHARS]


def excerpt_of(data: bytes) -> str:
    """Return the first bytes as text that is safe to log and store.

    >>> excerpt_of(b'{"a":\\x00')
    '{"a":\\\\x00'
    """
    return data[:_SAMPLE_CHARS].decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
