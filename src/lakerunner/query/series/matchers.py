"""Label matchers. A regular expression must match the whole value."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakerunner.query.series import patterns

#: The cost of one call, whatever the pattern.
_STEPS_PER_VALUE = 500


class MatchKind(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label. An absent label has the empty value."""

    name: str
    kind: MatchKind
    value: str

    def matches(self, value: str) -> bool:
        match self.kind:
            case MatchKind.EQUAL:
                return value == self.value
            case MatchKind.NOT_EQUAL:
                return value != self.value
            case MatchKind.REGEX:
                return patterns.whole(self.value).accepts(value)
            case MatchKind.NOT_REGEX:
                return not patterns.whole(self.value).accepts(value)

    @property
    def pattern(self) -> patterns.Pattern | None:
        """The compiled pattern, if the matcher has one. Refuses an invalid pattern."""
        return patterns.whole(self.value) if self.kind in (MatchKind.REGEX, MatchKind.NOT_REGEX) else None


def accepting(matchers: Sequence[Matcher], check: Callable[[], object]) -> Callable[[str], bool]:
    """A test whether all matchers accept a value. Each distinct value is tried once.

    `check` raises when the answer is no longer wanted. It is called often enough, however much the patterns cost.
    """
    tried: dict[str, bool] = {}
    of_matchers = [pattern for matcher in matchers if (pattern := matcher.pattern) is not None]
    meter = patterns.Meter(check)

    def accepts(value: str) -> bool:
        found = tried.get(value)
        if found is None:
            meter.spend(_STEPS_PER_VALUE + sum(pattern.steps(len(value)) for pattern in of_matchers))
            found = tried[value] = all(matcher.matches(value) for matcher in matchers)
        return found

    return accepts


def any_of(name: str, values: Sequence[str]) -> Matcher:
    """A matcher that accepts exactly these values.

    >>> any_of("job", ["a.b", "c"]).value
    'a\\\\.b|c'
    """
    return Matcher(name, MatchKind.REGEX, "|".join(map(patterns.literal, values)))


#: Matchers that a series must all satisfy.
Selector: TypeAlias = Sequence[Matcher]
