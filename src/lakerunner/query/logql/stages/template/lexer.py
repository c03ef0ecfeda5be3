"""Cut a template into text and the tokens of its actions."""

from __future__ import annotations

import re
from typing import NoReturn

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.tokens import END, Token

LANGUAGE = "template"

TEXT, OPEN, CLOSE, SPACE = "text", "{{", "}}", "space"
FIELD, VARIABLE, IDENTIFIER, KEYWORD, BOOL = "field", "variable", "identifier", "keyword", "bool"
NUMBER, COMPLEX, CHAR, STRING = "number", "complex", "character", "string"
DOT, NIL = "dot", "nil"

_KEYWORDS = ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
_WORDS = dict.fromkeys(_KEYWORDS, KEYWORD) | {"true": BOOL, "false": BOOL, "nil": NIL}
_SPACES = " \t\r\n"
_SYMBOLS = {"=": "=", "|": "|", "(": "(", ")": ")"}
#: What may follow a name.
_TERMINATORS = frozenset(_SPACES + ".,|:)(")
_QUOTED = {'"': re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'), "'": re.compile(r"'(?:[^'\\\n]|\\[^\n])*'")}
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?"
    r"|0[bB][01_]*(?:\.[01_]*)?|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)


def tokenize(text: str) -> list[Token]:
    """All tokens. Spaces inside of actions are tokens too, because they separate arguments."""
    return _Lexer(text).run()


def is_word(c: str) -> bool:
    """Whether a character may be part of a name.

    >>> is_word("é"), is_word("_"), is_word("-")
    (True, True, False)
    """
    return c == "_" or c.isalpha() or c.isdecimal()


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.parens = 0
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            self._text()
            if self.at < len(self.text):
                self._action()
        self.tokens.append(Token(END, "", self.at, self.at))
        return self.tokens

    def _emit(self, kind: str, end: int) -> None:
        self.tokens.append(Token(kind, self.text[self.at : end], self.at, end))
        self.at = end

    def _fail(self, reason: str, start: int, end: int) -> NoReturn:
        raise ParseError(reason, text=self.text, start=start, end=end, language=LANGUAGE)

    def _text(self) -> None:
        """The text up to the next action, which may trim it at its end."""
        opened = self.text.find(OPEN, self.at)
        end = len(self.text) if opened < 0 else opened
        kept = self.text[self.at : end]
        if opened >= 0 and self._trims_left(opened + 2):
            kept = kept.rstrip(_SPACES)
        if kept:
            self._emit(TEXT, self.at + len(kept))
        self.at = end

    def _trims_left(self, at: int) -> bool:
        return self.text[at : at + 1] == "-" and self.text[at + 1 : at + 2] in tuple(_SPACES)

    def _closing(self) -> int:
        """The length of the closing delimiter here, with its trim marker; 0 if there is none."""
        if self.text.startswith(CLOSE, self.at):
            return 2
        marker = self.text[self.at : self.at + 1] in tuple(_SPACES) and self.text.startswith("-}}", self.at + 1)
        return 4 if marker else 0

    def _action(self) -> None:
        start, body = self.at, self.at + 2
        if self._trims_left(body):
            body += 2
        if self.text.startswith("/*", body):
            self._comment(start, body)
            return
        self._emit(OPEN, start + 2)
        self.at, self.parens = body, 0
        while not (closing := self._closing()):
            self._inside(start)
        if self.parens:
            self._fail("unclosed left paren", self.at, self.at + 2)
        self._close(closing)

    def _close(self, closing: int) -> None:
        self.at += closing - 2
        self._emit(CLOSE, self.at + 2)
        if closing == 4:
            while self.text[self.at : self.at + 1] in tuple(_SPACES):
                self.at += 1

    def _comment(self, start: int, body: int) -> None:
        end = self.text.find("*/", body + 2)
        if end < 0:
            self._fail("unclosed comment", start, len(self.text))
        self.at = end + 2
        closing = self._closing()
        if not closing:
            self._fail("comment ends before closing delimiter", start, end + 2)
        self._close(closing)
        self.tokens.pop()

    def _inside(self, opened: int) -> None:
        text, at = self.text, self.at
        if at >= len(text):
            self._fail("unclosed action", opened, len(text))
        c = text[at]
        if c in _SPACES:
            self._space()
        elif text.startswith(":=", at):
            self._emit(":=", at + 2)
        elif c in _SYMBOLS:
            self.parens += (c == "(") - (c == ")")
            if self.parens < 0:
                self._fail("unexpected right paren", at, at + 1)
            self._emit(c, at + 1)
        elif c in _QUOTED:
            self._quoted(c)
        elif c == "`":
            self._raw()
        elif c == "$" or (c == "." and not text[at + 1 : at + 2].isdecimal()):
            self._path(c)
        elif c in "+-." or c in "0123456789":
            self._number()
        elif is_word(c):
            self._word()
        elif c.isascii() and c.isprintable() and c != ":":
            self._emit(c, at + 1)
        else:
            self._fail(f"unrecognized character in action: {c!r}", at, at + 1)

    def _space(self) -> None:
        end = self.at
        while self.text[end : end + 1] in tuple(_SPACES):
            end += 1
        # The last space before `-}}` belongs to the delimiter.
        if self.text.startswith("-}}", end):
            end -= 1
        if end > self.at:
            self._emit(SPACE, end)

    def _quoted(self, quote: str) -> None:
        found = _QUOTED[quote].match(self.text, self.at)
        if found is None:
            kind = "quoted string" if quote == '"' else "character constant"
            self._fail(f"unterminated {kind}", self.at, len(self.text))
        self._emit(STRING if quote == '"' else CHAR, found.end())

    def _raw(self) -> None:
        end = self.text.find("`", self.at + 1)
        if end < 0:
            self._fail("unterminated raw quoted string", self.at, len(self.text))
        self._emit(STRING, end + 1)

    def _word_end(self, at: int) -> int:
        end = at
        while end < len(self.text) and is_word(self.text[end]):
            end += 1
        if end < len(self.text) and self.text[end] not in _TERMINATORS and not self.text.startswith(CLOSE, end):
            self._fail(f"bad character {self.text[end]!r}", end, end + 1)
        return end

    def _path(self, first: str) -> None:
        end = self._word_end(self.at + 1)
        self._emit(VARIABLE if first == "$" else FIELD if end > self.at + 1 else DOT, end)

    def _word(self) -> None:
        end = self._word_end(self.at)
        word = self.text[self.at : end]
        self._emit(_WORDS.get(word, IDENTIFIER), end)

    def _number(self) -> None:
        end = self._number_end(self.at)
        if self.text[end : end + 1] in ("+", "-"):
            end = self._number_end(end)
            if self.text[end - 1] != "i":
                self._fail(f"bad number syntax: {self.text[self.at : end]!r}", self.at, end)
            self._emit(COMPLEX, end)
            return
        self._emit(NUMBER, end)

    def _number_end(self, at: int) -> int:
        found = _NUMBER.match(self.text, at)
        assert found is not None
        end = found.end()
        if end < len(self.text) and is_word(self.text[end]):
            self._fail(f"bad number syntax: {self.text[self.at : end + 1]!r}", self.at, end + 1)
        return end
