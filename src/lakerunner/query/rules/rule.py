"""A materialization rule as queries see it, and the parts of queries that one may answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.compute import Compute
from lakerunner.model.time import NS_PER_S
from lakerunner.query.rules.selection import Selection

#: Samples of rules lie in buckets of this width, open at the start and closed at the end.
BUCKET_NS = 10 * NS_PER_S
BUCKET_MS = 10_000


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """One version of a rule, as the catalog has it."""

    rule_id: int
    version: int
    #: Also the name of its metric.
    name: str
    signal: str
    match: str
    #: Names in the language of the signal, and the labels of the series that they have become.
    dimensions: tuple[tuple[str, str], ...]
    compute: Compute
    field: str = ""
    #: Labels that every series of the rule has.
    static_labels: tuple[tuple[str, str], ...] = ()
    stored: StoredRule | None = dataclass_field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A version of a rule whose selection has been read."""

    version: RuleVersion
    selection: Selection

    @property
    def name(self) -> str:
        return self.version.name

    def label_of(self, dimension: str) -> str | None:
        """The label that a dimension has become; None if the rule does not keep it."""
        return next((label for name, label in self.version.dimensions if name == dimension), None)


class Function(enum.StrEnum):
    """What a query makes of the rows of a group and a window."""

    COUNT = "count"
    BYTES = "bytes"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    QUANTILE = "quantile"
    #: How many different values a field has.
    DISTINCT = "distinct"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A part of a query that counts or aggregates rows by some labels, over a window before each step."""

    #: As EXPLAIN shows it.
    text: str
    signal: str
    selection: Selection
    function: Function
    field: str
    by: tuple[str, ...]
    range_ns: int
    offset_ns: int = 0
    #: What the result is divided by: the seconds of the window, for rates.
    divisor: float = 1.0
    #: Which quantile, of one.
    quantile: float = 0.0
    #: Which quantiles, where the language has several at once, and a label that tells them apart.
    quantiles: tuple[float, ...] = ()
    #: Labels of the answer whose values are no plain texts in the language of the query.
    untyped: tuple[str, ...] = ()
    #: Labels that every series of the answer has. One that a series of the rule lacks is empty there.
    always: frozenset[str] = frozenset()
    #: Whether a series has the value zero at steps without rows.
    zeros: bool = False
    #: Whether labels of the answer say their type, and those that are missing are empty texts.
    typed: bool = False
