"""Text to a tree: `count{job="api"}`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.strings import quote, unquote
from lakerunner.query.syntax.tokens import END, Cursor, Token

_TOKEN = re.compile(r'\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<sign>[{}=,]))')


@dataclass(frozen=True, slots=True)
class Count:
    matchers: tuple[Matcher, ...]

    def __str__(self) -> str:
        return f"count{{{', '.join(f'{one.name}={quote(one.value)}' for one in self.matchers)}}}"


class Parser(Cursor):
    language = "count"

    def whole(self) -> Count:
        word = self.expect("word", "a query")
        if word.text != "count":
            self.fail(f"unknown word {word.text!r}", word.start, word.end)
        self.expect("{", "a query")
        matchers = []
        while not self.accept("}"):
            name = self.expect("word", "a selector")
            self.expect("=", "a selector")
            value = self.expect("string", "a selector")
            matchers.append(Matcher(name.text, MatchKind.EQUAL, unquote(self.text, value, self.language)))
            if not self.at("}"):
                self.expect(",", "a selector")
        self.expect(END, "a query")
        return Count(tuple(matchers))


def parse(text: str) -> Count:
    Parser.check_text(text)
    tokens, at = [], 0
    while (found := _TOKEN.match(text, at)) is not None:
        kind = found.group("sign") or str(found.lastgroup)
        tokens.append(Token(kind, found.group().strip(), found.start(str(found.lastgroup)), found.end()))
        at = found.end()
    parser = Parser(text, [*tokens, Token(END, "", len(text), len(text))])
    if text[at:].strip():
        parser.fail("unexpected character", at, at + 1)
    return parser.whole()
