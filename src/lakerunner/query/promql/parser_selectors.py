"""The part of the PromQL parser that reads selectors, and the modifiers that follow an operand."""

from __future__ import annotations

import math
from dataclasses import replace

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import AtEdge, Expr, MatrixSelector, Subquery, VectorSelector
from lakerunner.query.promql.durations import Duration, literal_seconds
from lakerunner.query.promql.lexer import DURATION, IDENTIFIER, LANGUAGE, NUMBER, STRING
from lakerunner.query.promql.parser_durations import DurationParser
from lakerunner.query.series.go_format import plain
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.strings import quote, unquote
from lakerunner.query.syntax.tokens import Token

#: Prometheus' bound in seconds. Times beyond the range of milliseconds become one that has no samples.
_MAX_AT_S = 2.0**63
_NO_TIME_MS = -(1 << 62)


class SelectorParser(DurationParser):
    language = LANGUAGE

    def word(self) -> str:
        """The current token as a keyword: identifiers in lower case, others as written."""
        return self.token.text.lower() if self.at(IDENTIFIER) else self.token.text

    def selector(self, name: str, first: Token) -> Expr:
        matchers: list[Matcher] = []
        if self.at("{"):
            matchers = self._matchers()
        names = [matcher for matcher in matchers if matcher.name in ("", METRIC_NAME)]
        if name and names:
            reason = f"metric name must not be set twice: {quote(name)} or {quote(names[0].value)}"
            self.fail(reason, first.start, self.previous.end)
        if name:
            matchers.append(Matcher(METRIC_NAME, MatchKind.EQUAL, name))
        # Metric names inside the braces are matchers like others.
        matchers = [replace(matcher, name=matcher.name or METRIC_NAME) for matcher in matchers]
        return VectorSelector(name, tuple(matchers), start=first.start, end=self.previous.end)

    def _matchers(self) -> list[Matcher]:
        self.expect("{", "label matching")
        matchers: list[Matcher] = []
        while not self.at("}"):
            matchers.append(self._matcher())
            if not self.at("}"):
                self.expect(",", "label matching")
        self.take()
        return matchers

    def _matcher(self) -> Matcher:
        """One matcher. A quoted string alone is the metric name, returned as a matcher with an empty label name."""
        if not self.at(IDENTIFIER, STRING):
            self.unexpected("label matching", 'identifier or "}"')
        token = self.take()
        name = unquote(self.text, token, LANGUAGE) if token.kind == STRING else token.text
        if token.kind == STRING and self.at(",", "}"):
            return Matcher("", MatchKind.EQUAL, name)
        if not self.at("=", "!=", "=~", "!~"):
            self.unexpected("label matching", "label matching operator")
        kind = MatchKind(self.take().kind)
        if not self.at(STRING):
            self.unexpected("label matching", "string")
        value = self.take()
        matcher = Matcher(name, kind, unquote(self.text, value, LANGUAGE))
        try:
            pattern = matcher.pattern
        except BadInput as reason:
            self.fail(reason.message, value.start, value.end)
        if pattern is not None:
            self.patterns.spend(pattern)
        return matcher

    # -- modifiers after an operand ----------------------------------------------------------------------------

    def modified(self, expr: Expr) -> Expr:
        while True:
            word = self.word()
            if self.at("["):
                expr = self._bracket(expr)
            elif self.at("@"):
                expr = self._at(expr)
            elif self.at(IDENTIFIER) and word == "offset":
                expr = self._offset(expr)
            elif self.at(IDENTIFIER) and word in ("anchored", "smoothed"):
                expr = self._extended(expr, word)
            else:
                return expr

    def _bracket(self, expr: Expr) -> Expr:
        opened = self.take()
        width = self.positive_duration("subquery or range selector")
        if self.accept(":"):
            step = None if self.at("]") else self.positive_duration("subquery selector")
            close = self.expect("]", "subquery selector")
            if isinstance(expr, MatrixSelector | Subquery):
                # Checked while parsing: a chain of subqueries would otherwise nest without limit.
                reason = "subquery is only allowed on instant vector, got matrix instead"
                self.fail(reason, expr.start, close.end)
            return Subquery(expr, width, step, start=expr.start, end=close.end)
        close = self.expect("]", "subquery or range")
        if not isinstance(expr, VectorSelector):
            self.fail("ranges only allowed for vector selectors", opened.start, close.end)
        if expr.offset is not None:
            self.fail("no offset modifiers allowed before range", opened.start, close.end)
        if expr.at is not None:
            self.fail("no @ modifiers allowed before range", opened.start, close.end)
        return MatrixSelector(expr, width, expr.start, close.end)

    def _offset(self, expr: Expr) -> Expr:
        self.take()
        offset = self.offset_duration()
        end = self.previous.end
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if not isinstance(target, VectorSelector | Subquery):
            reason = (
                "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery"
            )
            self.fail(reason, expr.start, end)
        if target.offset is not None:
            self.fail("offset may not be set multiple times", expr.start, end)
        # A zero offset is dropped.
        return self._changed(expr, end, offset=None if literal_seconds(offset) == 0 else offset)

    def _changed(self, expr: Expr, end: int, **changes: Duration | int | AtEdge | bool | None) -> Expr:
        if isinstance(expr, MatrixSelector):
            return replace(expr, vector=replace(expr.vector, **changes), end=end)  # type: ignore[arg-type]
        assert isinstance(expr, VectorSelector | Subquery)
        return replace(expr, end=end, **changes)  # type: ignore[arg-type]

    def _at(self, expr: Expr) -> Expr:
        self.take()
        at: int | AtEdge
        if self.at(IDENTIFIER) and self.word() in ("start", "end") and self.peek().kind == "(":
            at = AtEdge(self.take().text.lower())
            self.take()
            self.expect(")", "@ modifier")
        else:
            seconds = self.signed_number("@ modifier")
            if math.isnan(seconds) or abs(seconds) >= _MAX_AT_S:
                shown = plain(seconds) if not math.isfinite(seconds) else f"{seconds:f}"
                self.fail(f"timestamp out of bounds for @ modifier: {shown}", expr.start, self.previous.end)
            at = int(math.copysign(math.floor(abs(seconds) * 1000 + 0.5), seconds))
            at = at if abs(at) < -_NO_TIME_MS else _NO_TIME_MS
        end = self.previous.end
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if not isinstance(target, VectorSelector | Subquery):
            reason = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery"
            self.fail(reason, expr.start, end)
        if target.at is not None:
            self.fail("@ <timestamp> may not be set multiple times", expr.start, end)
        return self._changed(expr, end, at=at)

    def _extended(self, expr: Expr, word: str) -> Expr:
        token = self.take()
        target = expr.vector if isinstance(expr, MatrixSelector) else expr
        if isinstance(target, Subquery):
            self.fail(f"{word} modifier is not supported for subqueries", expr.start, token.end)
        if not isinstance(target, VectorSelector):
            self.fail(f"{word} modifier not implemented", expr.start, token.end)
        if target.anchored if word == "smoothed" else target.smoothed:
            self.fail("anchored and smoothed modifiers cannot be used together", expr.start, token.end)
        return self._changed(expr, token.end, **{word: True})

    def signed_number(self, context: str) -> float:
        sign = self.accept("+", "-")
        token = self.token
        if self.at(NUMBER, DURATION):
            self.take()
            value = self.number_value(token)
        elif self.at(IDENTIFIER) and self.word() in ("inf", "nan"):
            value = math.inf if self.take().text.lower() == "inf" else math.nan
        else:
            self.unexpected(context, "a number")
        return -value if sign is not None and sign.kind == "-" else value
