"""What selects rows, in a form that is the same for every language: conditions, some of them on one label.

Stages that change labels or lines cut a pipeline into levels. The conditions of one level may be in any order; those of
different levels see different labels, and are never compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.rules.implication import implies
from lakerunner.query.series.matchers import Matcher


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition that a row must satisfy."""

    #: As EXPLAIN shows it. Two conditions that differ only here are the same.
    text: str
    #: The condition on a label by its name, where it is one.
    matcher: Matcher | None = None
    #: Any other condition, which is compared for equality only.
    other: Hashable = None
    #: Whether the label still has the value that the condition sees when the row is counted.
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows that a stage fails on are a hole in the coverage of a rule, and so of no concern here."""

    #: One more than `changes`.
    levels: tuple[tuple[Condition, ...], ...]
    #: The stages between the levels. They must be the same for two selections to be comparable.
    changes: tuple[Hashable, ...] = ()

    def where(self, condition: Condition) -> Selection:
        """The rows that satisfy one more condition, after all changes."""
        *before, last = self.levels
        return Selection((*before, (*last, condition)), self.changes)

    @property
    def metric(self) -> str:
        """The one metric whose samples are selected; empty if they are rows of another signal."""
        matchers = (each.matcher for level in self.levels for each in level)
        names = [each.value for each in matchers if each is not None and each.name == METRIC_NAME]
        return names[0] if names else ""


def not_implied(query: Selection, rule: Selection) -> Iterator[Condition]:
    """The conditions of the rule that the query does not imply: rows that the query wants and the rule lacks."""
    for asked, stored in zip(query.levels, rule.levels, strict=False):
        yield from (each for each in stored if not _implied(asked, each))


def further(query: Selection, rule: Selection) -> Iterator[Condition]:
    """The conditions of the query that the rule does not imply: they are still to be applied to its series."""
    for asked, stored in zip(query.levels, rule.levels, strict=False):
        yield from (each for each in asked if not _implied(stored, each))


def _implied(given: tuple[Condition, ...], wanted: Condition) -> bool:
    if wanted.matcher is None:
        return any(each.matcher is None and each.other == wanted.other for each in given)
    return implies([each.matcher for each in given if each.matcher is not None], wanted.matcher)
