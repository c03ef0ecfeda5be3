"""The grammar of log queries: the selector in braces, and the stages after it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakerunner.query.logql.addresses import parse_addresses
from lakerunner.query.logql.ast import (
    Assignment,
    Decolorize,
    Drop,
    Extraction,
    Json,
    Keep,
    LabelChoice,
    LabelFilter,
    LabelFormat,
    LineFilter,
    LineFormat,
    LineOp,
    LineText,
    Logfmt,
    PatternParser,
    Regexp,
    Stage,
    Unpack,
    Unwrap,
)
from lakerunner.query.logql.entries import ERROR
from lakerunner.query.logql.field_paths import parse_json_path, parse_logfmt_key
from lakerunner.query.logql.functions import CONVERSIONS
from lakerunner.query.logql.lexer import FLAG, FUNCTION, IDENTIFIER, KEYWORDS, STRING
from lakerunner.query.logql.line_patterns import parse_filter_pattern, parse_parser_pattern
from lakerunner.query.logql.parser_conditions import ConditionParser
from lakerunner.query.logql.stages.template import parse as parse_template
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.patterns import compiled

_LINE_OPS = tuple(LineOp)
_NEGATED = frozenset({LineOp.LACKS, LineOp.MATCHES_NOT, LineOp.FITS_NOT})
_STAGES = (
    "decolorize",
    "drop",
    "json",
    "keep",
    "label_format",
    "line_format",
    "logfmt",
    "pattern",
    "regexp",
    "unpack",
    "unwrap",
)

_T = TypeVar("_T")


class StageParser(ConditionParser):
    """Reads selectors and stages."""

    def matchers(self) -> tuple[Matcher, ...]:
        self.expect("{", "stream selector")
        matchers: list[Matcher] = []
        if not self.at("}"):
            matchers += self.list_of(self._selector_matcher)
        self.expect("}", "stream selector")
        return tuple(matchers)

    def _selector_matcher(self) -> Matcher:
        return self.matcher(self.label("stream selector"), "stream selector")

    def stages(self) -> tuple[Stage, ...]:
        """The stages up to `unwrap`, which is none."""
        stages: list[Stage] = []
        while self.at("|", *_LINE_OPS) and not self.at_unwrap():
            self.count_part()
            stages += self._line_filters() if not self.at("|") else [self._stage()]
        return tuple(stages)

    def at_unwrap(self) -> bool:
        return self.at("|") and self.peek().kind == "unwrap"

    # -- line filters ------------------------------------------------------------------------------------------

    def _line_filters(self) -> Iterator[LineFilter]:
        token = self.take()
        op = LineOp(token.kind)
        texts = [self._line_text(op)]
        while self.accept("or"):
            self.count_part()
            texts.append(self._line_text(op))
        if op in _NEGATED:
            # None of the texts is found: the same as one filter for each.
            yield from (LineFilter(op, (text,), token.start, self.previous.end) for text in texts)
        else:
            yield LineFilter(op, tuple(texts), token.start, self.previous.end)

    def _line_text(self, op: LineOp) -> LineText:
        if self.at_function("ip"):
            name = self.take()
            value, token = self.argument("ip")
            if op not in (LineOp.CONTAINS, LineOp.LACKS):
                self.fail(f'ip("…") cannot follow "{op}"', name.start, token.end, 'write |= ip("…") or != ip("…")')
            self.read(parse_addresses, value, token)
            return LineText(value, ip=True)
        value, token = self.string("line filter")
        if op in (LineOp.MATCHES, LineOp.MATCHES_NOT):
            self.regexp(value, token)
        elif op in (LineOp.FITS, LineOp.FITS_NOT):
            self.read(parse_filter_pattern, value, token)
        return LineText(value)

    # -- stages after a pipe -----------------------------------------------------------------------------------

    def _stage(self) -> Stage:
        start = self.take().start
        token = self.token
        match token.kind:
            case "json":
                self.take()
                return Json(self._extractions(parse_json_path), start, self.previous.end)
            case "logfmt":
                return self._logfmt(start)
            case "regexp":
                return self._regexp(start)
            case "pattern":
                self.take()
                pattern, literal = self.string("pattern")
                self.read(parse_parser_pattern, pattern, literal)
                return PatternParser(pattern, start, self.previous.end)
            case "unpack":
                self.take()
                return Unpack(start, self.previous.end)
            case "decolorize":
                self.take()
                return Decolorize(start, self.previous.end)
            case "line_format":
                self.take()
                return LineFormat(self._template("line_format"), start, self.previous.end)
            case "label_format":
                return self._label_format(start)
            case "drop":
                self.take()
                return Drop(tuple(self.list_of(self._choice)), start, self.previous.end)
            case "keep":
                self.take()
                return Keep(tuple(self.list_of(self._choice)), start, self.previous.end)
        if not self.at(IDENTIFIER, "(", *KEYWORDS):
            self.unexpected("pipeline", "a parser, a format or a label filter")
        return self.label_filter(start)

    def label_filter(self, start: int) -> LabelFilter:
        """The condition after a pipe."""
        token, after = self.token, self.peek()
        if token.kind == IDENTIFIER and after.kind in ("|", "end of input", IDENTIFIER, STRING, "number"):
            near = difflib.get_close_matches(token.text.lower(), _STAGES, 1)
            hint = f'did you mean "{near[0]}"?' if near else "compare it with a value, or name one of the stages"
            self.fail(f'"{token.text}" is no stage of LogQL', token.start, token.end, hint)
        condition = self.condition()
        return LabelFilter(condition, start, self.previous.end)

    def _logfmt(self, start: int) -> Logfmt:
        self.take()
        flags = set()
        while self.at(FLAG):
            flags.add(self.take().text)
        extractions = self._extractions(parse_logfmt_key)
        return Logfmt(extractions, "--strict" in flags, "--keep-empty" in flags, start, self.previous.end)

    def _regexp(self, start: int) -> Regexp:
        self.take()
        value, token = self.string("regexp")
        pattern = self.read(lambda text: compiled(text, True, dot_nl=False), value, token)
        self.patterns.spend(pattern)
        names = pattern.group_names
        if not names:
            self.fail("at least one named group is required", token.start, token.end, "write it like (?P<status>…)")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self.fail(f'the group "{twice}" is there twice', token.start, token.end)
        return Regexp(value, start, self.previous.end)

    def _extractions(self, read: Callable[[str], object]) -> tuple[Extraction, ...]:
        def extraction() -> Extraction:
            name = self.label("extraction")
            if not self.accept("="):
                self.read(read, name.text, name)
                return Extraction(name.text, name.text, name.start, name.end)
            expression, token = self.string("extraction")
            self.read(read, expression, token)
            return Extraction(name.text, expression, name.start, token.end)

        return tuple(self.list_of(extraction)) if self.at(IDENTIFIER) else ()

    def _label_format(self, start: int) -> LabelFormat:
        self.take()
        names: set[str] = set()

        def assignment() -> Assignment:
            name = self.label("label_format")
            if name.text == ERROR:
                self.fail(f"{ERROR} cannot be formatted", name.start, name.end)
            if name.text in names:
                self.fail(f'label "{name.text}" is formatted twice', name.start, name.end, "use a second label_format")
            names.add(name.text)
            self.expect("=", "label_format")
            if self.at(STRING):
                template = self._template("label_format")
                return Assignment(name.text, template, True, name.start, self.previous.end)
            other = self.label("label_format")
            return Assignment(name.text, other.text, False, name.start, other.end)

        return LabelFormat(tuple(self.list_of(assignment)), start, self.previous.end)

    def _template(self, context: str) -> str:
        value, token = self.string(context)
        self.read(parse_template, value, token)
        return value

    def _choice(self) -> LabelChoice:
        name = self.label("list of labels")
        if not self.at("=", "!=", "=~", "!~"):
            return LabelChoice(name.text)
        return LabelChoice(name.text, self.matcher(name, "list of labels"))

    def unwrap(self) -> Unwrap:
        start = self.take().start
        self.take()
        conversion = ""
        if self.at(FUNCTION) and self.token.text in CONVERSIONS:
            conversion = self.take().text
            self.expect("(", "unwrap")
        label = self.label("unwrap").text
        if conversion:
            self.expect(")", "unwrap")
        filters: list[LabelFilter] = []
        while self.at("|"):
            self.count_part()
            pipe = self.take()
            if not self.at(IDENTIFIER, "("):
                self.unexpected("pipeline after unwrap", "a label filter")
            filters.append(self.label_filter(pipe.start))
        return Unwrap(label, conversion, tuple(filters), start, self.previous.end)

    # -- pieces ------------------------------------------------------------------------------------------------

    def list_of(self, item: Callable[[], _T]) -> Iterator[_T]:
        """One or more items with commas between them."""
        yield item()
        while self.accept(","):
            self.count_part()
            yield item()
