"""Queries made of parts of recorded ones: a stage, an operand, a value or a template token comes from another query.

Recorded suites cover the corners of the language one by one; recombined queries cover the corners between them.

Left out, because the answer of Loki is an accident there:
- label filters after `drop`, `keep` and `label_format` of the same label, filters before a parser, and filters that may
  fail behind one by `__error__`: Loki applies filters while it parses the line, wherever they stand;
- `logfmt` that gives one key two labels, `label_format a=a`, filters by `__error_details__`;
- selectors of labels that are no labels of a stream, which find something here;
- metric queries over parsed lines that do not filter by `__error__`: whether Loki notices depends on the aggregation.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakerunner.model.errors import LakeError
from lakerunner.query.logql import ast
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.logql.records import STREAM_LABELS
from lakerunner.query.series.matchers import Matcher, MatchKind
from tests.query.logqltest.suite import Case, Suite, cases_of

#: Classes whose members may stand for each other.
_KINDS: dict[type, str] = {
    **dict.fromkeys((ast.RangeAggregate, ast.VectorAggregate, ast.Binary, ast.LabelReplace), "vector"),
    **dict.fromkeys((ast.Number, ast.VectorLiteral), "vector"),
    **dict.fromkeys(
        (ast.StringFilter, ast.NumberFilter, ast.DurationFilter, ast.BytesFilter, ast.IpFilter), "condition"
    ),
    **dict.fromkeys((ast.AndFilter, ast.OrFilter), "condition"),
    **dict.fromkeys((ast.LineFilter, ast.Json, ast.Logfmt, ast.Regexp, ast.PatternParser, ast.Unpack), "stage"),
    **dict.fromkeys((ast.LabelFilter, ast.LineFormat, ast.LabelFormat, ast.Decolorize, ast.Drop, ast.Keep), "stage"),
}
_PARSERS = (ast.Json, ast.Logfmt, ast.Regexp, ast.PatternParser, ast.Unpack)
_POSITIONS = frozenset({"start", "end", "op_start"})
_TEMPLATE_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|\.[A-Za-z_]\w*|[A-Za-z_]\w*|-?[0-9][0-9.]*|\s+|.', re.DOTALL)
_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_TEMPLATE_FIELDS = frozenset({(ast.LineFormat, "template"), (ast.Assignment, "value")})

_NO_ERROR = ast.LabelFilter(ast.StringFilter(Matcher("__error__", MatchKind.EQUAL, "")))

Path = tuple[tuple[str, int | None], ...]


class Recombined:
    """Makes questions from the cases of a suite."""

    def __init__(self, suite: Suite, only: str = "") -> None:
        self._params: dict[bool, list[Mapping[str, Any]]] = {True: [], False: []}
        self._trees: list[ast.Expr] = []
        #: What was seen, by kind of node, by field of a class, and by kind of template token.
        self._pool: dict[Any, list[Any]] = defaultdict(list)
        for topic in suite.topics():
            for case in cases_of(topic):
                if case.is_query and "error" not in case.recorded:
                    self._learn(case, chosen=only in topic.stem)

    def _learn(self, case: Case, *, chosen: bool) -> None:
        try:
            tree = parse(case.params["query"])
        except LakeError:
            return
        if chosen:
            self._trees.append(tree)
        self._params[isinstance(tree, ast.LogSelector)].append({**case.params, "kind": case.recorded["kind"]})
        for _, parent, name, value in _walk(tree):
            self._pool[_pool_of(parent, name, value)].append(value)
            if (type(parent), name) in _TEMPLATE_FIELDS:
                for action in _ACTION.findall(value):
                    for token in _TEMPLATE_TOKEN.findall(action):
                        self._pool[_token_kind(token)].append(token)

    def query(self, chance: random.Random) -> tuple[str, Mapping[str, Any]]:
        """A query that no accident of Loki decides, and the parameters to ask it with."""
        while True:
            tree = chance.choice(self._trees)
            try:
                for _ in range(chance.choice((1, 1, 2, 2, 3))):
                    tree = self._changed(tree, chance)
                text = print_expr(tree)
                tree = parse(text)
            except (LakeError, ValueError):
                continue
            if not is_accident(tree):
                return text, chance.choice(self._params[isinstance(tree, ast.LogSelector)])

    def _changed(self, tree: ast.Expr, chance: random.Random) -> ast.Expr:
        places = list(_walk(tree))
        path, parent, name, value = chance.choice(places)
        if (type(parent), name) in _TEMPLATE_FIELDS and chance.random() < 0.8:
            return _replaced(tree, path, self._template(value, chance))
        if name == "stages" and path[-1][1] is not None and chance.random() < 0.3:
            return _replaced(tree, (*path[:-1], ("stages", None)), self._inserted(parent, path, chance))
        return _replaced(tree, path, chance.choice(self._pool[_pool_of(parent, name, value)]))

    def _inserted(self, parent: Any, path: Path, chance: random.Random) -> tuple[Any, ...]:
        at = path[-1][1] or 0
        stages = parent.stages
        if len(stages) > 1 and chance.random() < 0.3:
            return (*stages[:at], *stages[at + 1 :])
        return (*stages[:at], chance.choice(self._pool["stage"]), *stages[at:])

    def _template(self, template: str, chance: random.Random) -> str:
        actions = list(_ACTION.finditer(template))
        if not actions:
            return str(chance.choice(self._pool[ast.LineFormat, "template"]))
        action = chance.choice(actions)
        tokens = _TEMPLATE_TOKEN.findall(action.group())
        places = [at for at, token in enumerate(tokens) if _token_kind(token) != "other"]
        if not places:
            return template
        at = chance.choice(places)
        tokens[at] = chance.choice(self._pool[_token_kind(tokens[at])])
        return template[: action.start()] + "".join(tokens) + template[action.end() :]


def _token_kind(token: str) -> str:
    if token[0] in '"`':
        return "template text"
    if token[0] == "." and len(token) > 1:
        return "template label"
    if token[0].isalpha() or token[0] == "_":
        return "template word"
    return "template number" if token[-1].isdigit() else "other"


def _pool_of(parent: Any, name: str, value: Any) -> Any:
    return _KINDS.get(type(value)) or (type(parent), name)


def _walk(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any, str, Any]]:
    """Yield every part with its place: the path to it, the node that has it, and the field."""
    for field in dataclasses.fields(node):
        if field.name in _POSITIONS:
            continue
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            for at, item in enumerate(value):
                here = (*path, (field.name, at))
                yield here, node, field.name, item
                if dataclasses.is_dataclass(item):
                    yield from _walk(item, here)
            continue
        here = (*path, (field.name, None))
        yield here, node, field.name, value
        if dataclasses.is_dataclass(value):
            yield from _walk(value, here)


def _replaced(node: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    (name, at), *rest = path
    value = getattr(node, name)
    if at is None:
        return dataclasses.replace(node, **{name: _replaced(value, tuple(rest), new)})
    changed = _replaced(value[at], tuple(rest), new)
    return dataclasses.replace(node, **{name: (*value[:at], changed, *value[at + 1 :])})


# -- accidents of Loki -------------------------------------------------------------------------------------------------


def is_accident(tree: ast.Expr) -> bool:
    if isinstance(tree, ast.LogSelector):
        return _filters_early(tree.stages) or _selects_fields(tree)
    ranges = [value for _, _, _, value in _walk(tree) if isinstance(value, ast.LogRange)]
    return any(
        _filters_early(each.selector.stages) or _selects_fields(each.selector) or _may_fail(each) for each in ranges
    )


def _selects_fields(selector: ast.LogSelector) -> bool:
    return any(matcher.name not in STREAM_LABELS for matcher in selector.matchers)


def _filters_early(stages: Sequence[ast.Stage]) -> bool:
    """Whether it shows that Loki applies the filters of a pipeline while it parses, wherever they stand."""
    parsed, filtered_error, filtered, changed = False, False, False, set[str]()
    for stage in stages:
        if isinstance(stage, _PARSERS):
            if filtered or _is_ambiguous(stage):
                return True
            parsed = True
        elif isinstance(stage, ast.Keep) and parsed:
            return True
        elif isinstance(stage, ast.Drop) and parsed:
            changed |= {choice.label for choice in stage.choices}
        elif isinstance(stage, ast.LabelFormat):
            changed |= {each.label for each in stage.assignments}
            changed |= {each.value for each in stage.assignments if not each.is_template}
            if any(each.label == each.value and not each.is_template for each in stage.assignments):
                return True
        elif isinstance(stage, ast.LabelFilter):
            names = set(_labels(stage))
            if (
                "__error_details__" in names
                or (parsed and names & changed)
                or (filtered_error and _may_set_error(stage))
            ):
                return True
            filtered = True
            filtered_error |= "__error__" in names
    return False


def _is_ambiguous(parser: Any) -> bool:
    """Whether a key is extracted twice: Loki gives it to one of the labels, by chance."""
    expressions = [each.expression for each in getattr(parser, "extractions", ())]
    labels = [each.label for each in getattr(parser, "extractions", ())]
    return len(set(expressions)) < len(expressions) or len(set(labels)) < len(labels)


def _may_set_error(stage: ast.LabelFilter) -> bool:
    quantities = (ast.NumberFilter, ast.DurationFilter, ast.BytesFilter)
    return any(isinstance(value, quantities) for _, _, _, value in _walk(stage))


def _may_fail(logs: ast.LogRange) -> bool:
    """Whether entries may have errors that the query does not remove at its end."""
    stages: Sequence[Any] = (*logs.selector.stages, *(logs.unwrap.filters if logs.unwrap else ()))
    if logs.unwrap is None and not any(isinstance(stage, (*_PARSERS, ast.LabelFilter)) for stage in stages):
        return False
    last = stages[-1] if stages else None
    return last != _NO_ERROR


def _labels(stage: ast.LabelFilter) -> Iterator[str]:
    for _, _, _, value in _walk(stage):
        if hasattr(value, "matcher"):
            yield value.matcher.name
        elif hasattr(value, "label"):
            yield value.label
