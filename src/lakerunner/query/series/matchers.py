"""Label matchers. Regular expressions are RE2's: fully anchored, and matched in linear time."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import re2  # type: ignore[import-untyped]

from lakerunner.model.errors import BadInput


class MatchKind(enum.StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@functools.lru_cache(maxsize=1024)
def compile_anchored(pattern: str) -> Any:
    """Compile a pattern that must match the whole value, newlines included.

    RE2 has the syntax of Prometheus' own engine, and no pattern makes it backtrack. The standard library's engine can
    take exponential time for patterns that users write.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(f"^(?s:{pattern})$", options)
    except re2.error as reason:
        text = reason.args[0]
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        raise BadInput(f"cannot read regular expression {pattern!r}: {text}") from None


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
                return compile_anchored(self.value).search(value) is not None
            case MatchKind.NOT_REGEX:
                return compile_anchored(self.value).search(value) is None

    def check(self) -> None:
        """Refuse an invalid pattern."""
        if self.kind in (MatchKind.REGEX, MatchKind.NOT_REGEX):
            compile_anchored(self.value)


def any_of(name: str, values: Sequence[str]) -> Matcher:
    """A matcher that accepts exactly these values.

    >>> any_of("job", ["a.b", "c"]).value
    'a\\\\x{2e}b|c'
    """
    return Matcher(name, MatchKind.REGEX, "|".join(map(_literal, values)))


def _literal(value: str) -> str:
    """The value as a pattern that matches nothing else."""
    return "".join(c if c.isalnum() or c == "_" or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in value)


#: Matchers that a series must all satisfy.
Selector: TypeAlias = Sequence[Matcher]
