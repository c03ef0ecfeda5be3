"""What a derivation rule is: which rows of a signal it takes, by which dimensions it groups them, what it computes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Kind(enum.StrEnum):
    #: Rows, or the sum of a column, as a counter.
    COUNTER = "counter"
    #: The distribution of a column, as a native histogram.
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Dimension:
    """A label and the column that it comes from. A row without a value has no such label."""

    label: str
    column: str
    #: Stored value -> the value of the label, where they differ.
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of a rule."""

    metric: str
    kind: Kind
    description: str
    #: The column that is summed or distributed; without one, rows are counted.
    column: str = ""
    #: What a value is multiplied with, for example to make seconds of nanoseconds.
    scale: float = 1.0
    unit: str = ""
    #: Only rows with this value in this column.
    only: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    #: The signal whose rows it takes.
    signal: str
    dimensions: tuple[Dimension, ...]
    measures: tuple[Measure, ...]
    #: Column -> the values that it must have one of.
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Series that one task may make. Rows of further ones are counted with `OVERFLOW` in place of all dimensions but
    #: the first, so that no row is lost and no cardinality explodes.
    max_series: int = 20_000
