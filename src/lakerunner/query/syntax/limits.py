"""Limits on a query before it runs: the length of its text, the depth and the size of its tree."""

from __future__ import annotations

from lakerunner.query.syntax.errors import ParseError

#: Characters of one query. Generated dashboard queries stay below a tenth of this.
MAX_TEXT_LENGTH = 256 * 1024

#: Nesting of parentheses, calls and unary operators. Chains of left-associative operators do not nest.
#: Every level costs a few Python frames in the parser, the checker, the printer and the evaluator.
#: All of them must stay below the interpreter's recursion limit of 1,000.
MAX_DEPTH = 100

#: Operands, arguments and conditions of one query. Parsing, encoding and evaluating each of them takes 0.1 ms, and the
#: clock is not checked until the query is parsed.
MAX_PARTS = 10_000


def check_length(text: str, language: str) -> None:
    """Refuse a text that is too long, before tokenizing it."""
    if len(text) > MAX_TEXT_LENGTH:
        raise ParseError(
            f"it has {len(text):,} characters, more than {MAX_TEXT_LENGTH:,}",
            text=text[:80],
            start=0,
            end=0,
            language=language,
            hint="split it, or filter with a regular expression instead of a list",
        )


class DepthGuard:
    """Counts nesting and parts while parsing; refuses at `MAX_DEPTH` instead of exhausting the stack."""

    def __init__(self, text: str, language: str) -> None:
        self._text = text
        self._language = language
        self._depth = 0
        self._parts = 0

    def enter(self, offset: int) -> None:
        self._depth += 1
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ParseError(
                f"it has more than {MAX_PARTS:,} parts",
                text=self._text,
                start=offset,
                end=offset + 1,
                language=self._language,
                hint="split it, or filter with a regular expression instead of a list",
            )
        if self._depth > MAX_DEPTH:
            raise ParseError(
                f"it nests deeper than {MAX_DEPTH} levels",
                text=self._text,
                start=offset,
                end=offset + 1,
                language=self._language,
            )

    def leave(self) -> None:
        self._depth -= 1
