"""Parse errors that point at the token: by line and column, and underlined in the text."""

from __future__ import annotations

from typing import Any

from lakerunner.model.errors import BadInput

#: Longer lines are cut around the token, so that one long query does not fill a terminal.
_SHOWN_WIDTH = 100


class ParseError(BadInput):
    """The text is not a valid query. `start` and `end` are offsets into `text`."""

    def __init__(
        self, reason: str, *, text: str, start: int, end: int, language: str = "query", hint: str | None = None
    ) -> None:
        self.reason = reason
        self.text = text
        self.start = min(max(start, 0), len(text))
        self.end = min(max(end, self.start), len(text))
        self.language = language
        self.line, self.column = position_of(text, self.start)
        super().__init__(f"cannot parse {language}: {reason}", hint=hint, where=f"{self.line}:{self.column}")

    def rendered(self) -> str:
        """The error, the line of the query, and the token underlined, for terminals and logs."""
        line_start = self.text.rfind("\n", 0, self.start) + 1
        line_end = self.text.find("\n", self.start)
        line_end = len(self.text) if line_end < 0 else line_end
        offset = self.start - line_start
        cut = max(0, offset - _SHOWN_WIDTH // 2)
        shown = self.text[line_start:line_end][cut : cut + _SHOWN_WIDTH].replace("\t", " ")
        width = max(1, min(self.end, line_end) - self.start)
        return f"{self}\n  {shown}\n  {' ' * (offset - cut)}{'^' * min(width, _SHOWN_WIDTH)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.reason, self.text, self.start, self.end, self.language, self.hint)


def _rebuild(reason: str, text: str, start: int, end: int, language: str, hint: str | None) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language=language, hint=hint)


def position_of(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from one.

    >>> position_of("sum(\\n  up)", 7)
    (2, 3)
    """
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
