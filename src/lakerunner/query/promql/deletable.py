"""Series that may be deleted: a plain selector, whose matchers decide every stored series."""

from __future__ import annotations

from lakerunner.query.promql.ast import VectorSelector, unwrapped
from lakerunner.query.promql.parser import parse
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.syntax.errors import ParseError


def series_matchers(text: str) -> tuple[Matcher, ...]:
    """The matchers of a selector. Anything else is refused at its position."""
    node = unwrapped(parse(text))
    if not isinstance(node, VectorSelector):
        raise _refused(text, node.start, node.end, "only a series selector can be deleted")
    if node.offset is not None or node.at is not None:
        raise _refused(text, node.start, node.end, "a deletion has a time range of its own, without offset and @")
    return tuple(node.matchers)


def _refused(text: str, start: int, end: int, reason: str) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language="PromQL")
