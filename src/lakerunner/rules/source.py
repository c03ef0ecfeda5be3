"""Where the fields of a rule stand in its file, so that errors inside a query point at line and column of the YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from lakerunner.query.syntax.errors import ParseError, position_of

LANGUAGE = "rule file"


@dataclass(frozen=True, slots=True)
class Span:
    """The text of one scalar: offsets into the file, and the style in which YAML writes it."""

    start: int
    end: int
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One rule in its file."""

    text: str
    span: Span
    #: The value of each field of the rule.
    fields: Mapping[str, Span] = field(default_factory=dict)

    @property
    def position(self) -> tuple[int, int]:
        """Line and column of the rule, both counted from one."""
        return position_of(self.text, self.span.start)

    def error(
        self, name: str, reason: str, start: int | None = None, end: int | None = None, hint: str | None = None
    ) -> ParseError:
        """An error about a field; `start` and `end` are offsets into its value."""
        span = self.fields.get(name, self.span)
        first = span.start if start is None else offset_in(self.text, span, start)
        last = span.end if end is None else max(offset_in(self.text, span, end), first + 1)
        return ParseError(reason, text=self.text, start=first, end=last, language=LANGUAGE, hint=hint)

    def query_error(self, name: str, error: ParseError) -> ParseError:
        """An error of the query in this field, at its place in the file."""
        return self.error(name, f"{name}: {error.reason}", error.start, error.end, error.hint)


def span_of(node: yaml.Node) -> Span:
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    return Span(node.start_mark.index, node.end_mark.index, style)


def offset_in(text: str, span: Span, offset: int) -> int:
    """The offset into the file of an offset into a scalar's value.

    >>> text = "match: 'a''b'"
    >>> text[offset_in(text, Span(7, 13, "'"), 2)]
    'b'
    """
    if span.style in ("|", ">"):
        return _in_block(text, span, offset)
    at = span.start + (1 if span.style in ("'", '"') else 0)
    while offset > 0 and at < span.end:
        if text[at] == "\n":
            at = _folded(text, at, span.end)
        elif span.style == "'" and text.startswith("''", at):
            at += 2
        elif span.style == '"' and text[at] == "\\":
            at += {"x": 4, "u": 6, "U": 10}.get(text[at + 1 : at + 2], 2)
        else:
            at += 1
        offset -= 1
    return min(at, span.end)


def _folded(text: str, at: int, end: int) -> int:
    """After a line break of a flow scalar, which stands for one space."""
    while at < end and text[at] in " \n\t\r":
        at += 1
    return at


def _in_block(text: str, span: Span, offset: int) -> int:
    """In a block scalar every line is indented alike, below a header."""
    at = text.find("\n", span.start, span.end) + 1
    if at == 0:
        return span.start
    lines = text[at : span.end].split("\n")
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    for line in lines:
        size = max(len(line) - indent, 0)
        if offset <= size:
            return min(at + min(indent, len(line)) + offset, span.end)
        offset -= size + 1
        at += len(line) + 1
    return span.end
