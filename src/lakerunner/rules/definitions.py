"""What a rule is: groups of materialization, recording and alerting rules, as a rule file declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as default
from typing import TypeAlias

from lakerunner.model.compute import Compute
from lakerunner.rules.source import Source

PROMQL, LOGQL, TRACEQL = "promql", "logql", "traceql"
LANGUAGES = (PROMQL, LOGQL, TRACEQL)
#: The language in which the rows of a signal are selected.
LANGUAGE_OF_SIGNAL = {"logs": LOGQL, "traces": TRACEQL, "metrics": PROMQL}
#: Series of a materialization rule that does not say how many it may have.
DEFAULT_MAX_SERIES = 10_000


@dataclass(frozen=True, slots=True)
class Materialize:
    """Make metric series of rows while they are ingested."""

    name: str
    signal: str
    #: LogQL log query, TraceQL spanset filter, or PromQL selector.
    match: str
    #: Names in the language of the signal that become labels of the series.
    dimensions: tuple[str, ...] = ()
    compute: Compute = Compute.COUNT
    #: What is added up, compared or distributed; empty for `count` and `bytes`.
    field: str = ""
    max_series: int = DEFAULT_MAX_SERIES
    #: Labels that every series of the rule has.
    labels: Mapping[str, str] = default(default_factory=dict)
    source: Source | None = default(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Record:
    """Write the result of a query, at every evaluation, as a series."""

    record: str
    expr: str
    labels: Mapping[str, str] = default(default_factory=dict)
    language: str = PROMQL
    source: Source | None = default(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Alert:
    """Alert on every element of a query's result."""

    alert: str
    expr: str
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    labels: Mapping[str, str] = default(default_factory=dict)
    annotations: Mapping[str, str] = default(default_factory=dict)
    language: str = PROMQL
    source: Source | None = default(default=None, compare=False, repr=False)


Rule: TypeAlias = Materialize | Record | Alert


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are applied together; recording and alerting rules are evaluated one after the other."""

    name: str
    rules: tuple[Rule, ...] = ()
    #: None: the ruler's default.
    interval_s: float | None = None
    #: Alerts or series that a rule may make; 0 is no limit.
    limit: int = 0
    #: None: chosen from the watermark.
    query_offset_s: float | None = None
    #: Labels of every rule of the group; a rule's own come first.
    labels: Mapping[str, str] = default(default_factory=dict)
    language: str = PROMQL
    #: Line and column in the file, both counted from one.
    source_position: tuple[int, int] = default(default=(1, 1), compare=False)

    @property
    def materialized(self) -> tuple[Materialize, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Materialize))
