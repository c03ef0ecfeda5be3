"""Selectors of a request: a log query without a pipeline, or none, which means everything."""

from __future__ import annotations

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.records import SERVICE_NAME
from lakerunner.query.series.matchers import Matcher, MatchKind

#: Every entry has this label.
EVERYTHING = LogSelector((Matcher(SERVICE_NAME, MatchKind.REGEX, ".+"),))


def selector_of(text: str, *, braces: bool = False) -> LogSelector:
    """Parse a selector. None matches everything; so do empty `braces` where they are allowed."""
    if not text or (braces and "".join(text.split()) == "{}"):
        return EVERYTHING
    expr = parse(text)
    if not isinstance(expr, LogSelector) or expr.stages:
        raise BadInput("only label matchers are supported")
    return expr


def log_query_of(text: str) -> LogSelector:
    """Parse a log query, which may have a pipeline. None matches everything."""
    if not text.strip():
        return EVERYTHING
    expr = parse(text)
    if not isinstance(expr, LogSelector):
        raise BadInput("only log queries are supported", hint='give a selector like {service_name="cart"}')
    return expr
