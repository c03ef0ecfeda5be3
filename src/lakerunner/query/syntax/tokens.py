"""Tokens with positions, and a cursor over them whose errors point at the token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.limits import check_length


@dataclass(frozen=True, slots=True)
class Token:
    """Each language names its own kinds. `text` is as written; `end` is the offset after the last character."""

    kind: str
    text: str
    start: int
    end: int


#: The kind of the token that ends every stream.
END = "end of input"


class Cursor:
    """Reads tokens one by one, with look-ahead. The base class of the languages' parsers."""

    language = "query"

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text = text
        self._tokens = tokens
        self._index = 0

    @classmethod
    def check_text(cls, text: str) -> None:
        check_length(text, cls.language)

    @property
    def token(self) -> Token:
        return self._tokens[self._index]

    @property
    def previous(self) -> Token:
        """The token before the current one."""
        return self._tokens[self._index - 1]

    def peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.token
        if token.kind != END:
            self._index += 1
        return token

    def at(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    def accept(self, *kinds: str) -> Token | None:
        return self.take() if self.at(*kinds) else None

    def expect(self, kind: str, context: str) -> Token:
        if not self.at(kind):
            self.unexpected(context, f'"{kind}"')
        return self.take()

    def unexpected(self, context: str, expected: str = "") -> NoReturn:
        wanted = f", expected {expected}" if expected else ""
        found = self.token.kind if self.token.kind == END else f'"{self.token.text}"'
        self.fail(f"unexpected {found} in {context}{wanted}", self.token.start, self.token.end)

    def fail(self, reason: str, start: int, end: int, hint: str | None = None) -> NoReturn:
        raise ParseError(reason, text=self.text, start=start, end=end, language=self.language, hint=hint)
