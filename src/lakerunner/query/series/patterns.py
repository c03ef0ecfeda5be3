"""Regular expressions of queries: RE2's, which match in linear time, and limits on what one of them may cost.

RE2 never backtracks, but it takes time in proportion to the pattern's program and to the text. A program has thousands
of instructions if somebody wants it to, and nothing can interrupt a match. So a program has a largest size, one match
has a largest cost, and whoever matches many texts counts the cost and calls its check. A list of plain texts (`a|b|c`),
as dashboards write it, is a set and needs no program.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from lakerunner.model.errors import BadInput, LimitHit

#: Memory of one compiled pattern: about 100,000 instructions, or an alternation of 20,000 pod names.
MAX_MEMORY_BYTES = 2 << 20
#: Instructions times bytes of one match. RE2 takes up to 25 ns for each, where every byte keeps all of them active.
MAX_STEPS = 1 << 29
#: Steps between two checks of the clock, 25 ms at most.
STEPS_PER_CHECK = 1 << 20
#: Instructions of all patterns of one query together. Compiling that many takes half a second.
MAX_INSTRUCTIONS = 500_000
#: Compiled patterns that stay in memory.
_CACHED = 128
_SHOWN = 200
_PUNCTUATION = r"[!-/:-@\[-^`{-~]"
#: Plain texts between bars. Punctuation may be escaped.
_TEXTS = re.compile(rf"(?:[^\\.+*?()\[\]{{}}^$]|\\{_PUNCTUATION})*")
_TEXT = re.compile(r"(?:[^\\|]|\\.)*", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
#: The start of a named group. Quoted text, escapes and character classes come first, because they may look like one.
_NAMED_GROUP = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\(\?P?<(\w+)>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern, and the cost of matching it."""

    text: str
    instructions: int
    #: Capturing groups. Only `groups_of` pays for them.
    groups: int
    _regex: Any
    #: The texts that match, instead of a program.
    _texts: frozenset[str] | None = None

    @property
    def texts(self) -> frozenset[str] | None:
        """The only texts that match, if the pattern is a list of plain texts."""
        return self._texts

    def steps(self, size: int, groups: int = 0) -> int:
        """The cost of matching a text of this size and capturing this many groups. Raises if it is too high."""
        steps = self.instructions * (1 + groups) * (size + 1)
        if steps > MAX_STEPS:
            raise LimitHit(
                f"cannot match regular expression {shown(self.text)} with a value of {size:,} bytes: "
                f"it takes {steps:,} steps, more than {MAX_STEPS:,} (fixed)",
                hint="use a shorter pattern",
            )
        return steps

    def accepts(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._regex.fullmatch(text) is not None if self._texts is None else text in self._texts

    def groups_of(self, text: str) -> tuple[str, ...] | None:
        """The text and its capturing groups, or None if the text does not match. Groups without a part are empty."""
        found = self._regex.fullmatch(text)
        return None if found is None else (text, *found.groups(""))

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the groups that have one, as often as they occur: RE2 keeps only the first of equal names."""
        return tuple(found[1] for found in _NAMED_GROUP.finditer(self.text) if found[1])

    def group_number(self, name: str) -> int | None:
        """The number of a group by its name or number, or None."""
        number = int(name) if name.isdigit() else self._regex.groupindex.get(name)
        return number if number is not None and number <= self.groups else None


@functools.lru_cache(maxsize=_CACHED)
def whole(pattern: str, *, captures: bool = False) -> Pattern:
    """Compile a pattern that must match the whole text; a dot matches newlines too.

    RE2 has the syntax of Prometheus' own engine. Capturing costs far more than matching: it is only for those who need
    the groups.
    """
    return _set(pattern) if not captures and _TEXTS.fullmatch(pattern) else compiled(pattern, captures, dot_nl=True)


def literal(text: str) -> str:
    """The text as a pattern that matches nothing else.

    >>> literal("a.b|c d")
    'a\\\\.b\\\\|c d'
    """
    return re.sub(_PUNCTUATION, lambda found: "\\" + found[0], text)


def _set(pattern: str) -> Pattern:
    texts, at = [], 0
    while at <= len(pattern):
        found = _TEXT.match(pattern, at)
        assert found is not None
        texts.append(_ESCAPED.sub(r"\1", found[0]))
        at = found.end() + 1
    return Pattern(pattern, 0, 0, None, frozenset(texts))


@functools.lru_cache(maxsize=_CACHED)
def compiled(pattern: str, captures: bool, *, dot_nl: bool) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    options.never_capture = not captures
    options.dot_nl = dot_nl
    try:
        regex = re2.compile(pattern, options)
    except re2.error as reason:
        text = reason.args[0]
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        if "too large" in text:
            text += f"; it may take {MAX_MEMORY_BYTES:,} bytes of memory (fixed)"
        raise BadInput(f"cannot read regular expression {shown(pattern)}: {text}") from None
    _refuse_foreign(pattern)
    return Pattern(pattern, regex.programsize, regex.groups, regex)


def _refuse_foreign(pattern: str) -> None:
    """Refuse what this RE2 reads but the engine of Prometheus, Loki and Tempo does not."""
    for found in _NAMED_GROUP.finditer(pattern):
        if found[0] == r"\C":
            raise BadInput(f"cannot read regular expression {shown(pattern)}: invalid escape sequence: \\C")
        if found[1] and not found[1].isascii():
            raise BadInput(f"cannot read regular expression {shown(pattern)}: invalid named capture group: {found[0]}")


class Meter:
    """Counts the steps of many matches, and calls the check whenever they may have taken 25 ms."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._steps = 0

    def spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps >= STEPS_PER_CHECK:
            self._steps = 0
            self._check()


class PatternGuard:
    """Counts the patterns of one query while parsing, and refuses those that take too long to compile."""

    def __init__(self) -> None:
        self._instructions = 0

    def spend(self, pattern: Pattern) -> None:
        self._instructions += pattern.instructions
        if self._instructions <= MAX_INSTRUCTIONS:
            return
        raise BadInput(
            f"cannot run the query: its regular expressions have more than {MAX_INSTRUCTIONS:,} instructions (fixed)",
            hint="use fewer or shorter patterns",
        )


def shown(pattern: str) -> str:
    """The pattern as errors show it."""
    return repr(pattern) if len(pattern) <= _SHOWN else f"{pattern[:_SHOWN]!r}… ({len(pattern):,} characters)"
