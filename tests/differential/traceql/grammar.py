"""Random TraceQL about given traces: names and values come from the spans, so that most queries find something."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Sequence

from lakerunner.query.traceql import ast
from lakerunner.query.traceql.literals import attribute_text
from tests.differential.traceql.traces import Trace, Value

_ORDER = ("=", "!=", "<", "<=", ">", ">=")
_COMMON = ("kind", "status", "name", "resource.service.name")


class Grammar:
    def __init__(self, traces: Sequence[Trace]) -> None:
        #: Values by the field as it is written.
        self._values: dict[str, list[Value]] = defaultdict(list)
        for trace in traces:
            for span in trace.spans:
                owners = [("span", span.attributes), ("resource", span.resource), ("instrumentation", span.scope)]
                owners += [("event", event.attributes) for event in span.events]
                owners += [("link", link.attributes) for link in span.links]
                for scope, attributes in owners:
                    for name, value in attributes.items():
                        if value == ("array", []):
                            continue
                        self._values[attribute_text(ast.Attribute(scope, name))].append(value)
                        if scope in ("span", "resource"):
                            self._values[attribute_text(ast.Attribute("", name))].append(value)
                for fields in (span.fields, *(item.fields for item in (*span.events, *span.links))):
                    for name, value in fields.items():
                        self._values[name].append(value)
        self._fields = sorted(self._values)
        self._common = [name for name in _COMMON if name in self._values]
        #: Fields of the span that are numbers, for calculations.
        self._numbers = [
            name
            for name in self._fields
            if not name.startswith(("event", "link"))
            and {kind for kind, _ in self._values[name]} <= {ast.INT, ast.FLOAT, ast.DURATION}
        ]

    def search(self, chance: random.Random) -> str:
        text = self._spansets(chance, chance.choice((0, 0, 1, 1, 2)))
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            text += f" | {self._stage(chance)}"
        return text

    def metric(self, chance: random.Random) -> str:
        functions = [
            "rate()",
            "count_over_time()",
            *(f"{name}_over_time({chance.choice(self._numbers)})" for name in ("min", "max", "avg", "sum")),
        ]
        text = f"{self._spansets(chance, chance.choice((0, 0, 0, 1)))} | {chance.choice(functions)}"
        if chance.random() < 0.6:
            text += f" by ({', '.join(self._group(chance) for _ in range(chance.choice((1, 1, 2))))})"
        if chance.random() < 0.15:
            text += f" {chance.choice(_ORDER[2:])} {chance.choice(('0', '1', '2.5', '100', '0.05'))}"
        return text

    def _group(self, chance: random.Random) -> str:
        if chance.random() < 0.4:
            return chance.choice(self._common)
        while True:
            field = chance.choice(self._fields)
            kinds = {kind for kind, _ in self._values[field]}
            if not field.startswith(("event", "link", "trace:id", "span:")) and "array" not in kinds:
                return field

    def _stage(self, chance: random.Random) -> str:
        match chance.randrange(5):
            case 0:
                return f"by({self._group(chance)})"
            case 1:
                return f"count() {chance.choice(_ORDER)} {chance.choice((1, 2, 3, 5, 10))}"
            case 2:
                field = chance.choice(self._numbers)
                bound = self._literal(chance.choice(self._values[field]))
                function = chance.choice(("min", "max", "avg", "sum"))
                return f"{function}({field}) {chance.choice(_ORDER)} {bound}"
            case 3:
                return self._spansets(chance, chance.choice((0, 0, 1)))
        return chance.choice(("coalesce()", "select(span.x, name, duration)"))

    def _spansets(self, chance: random.Random, depth: int) -> str:
        if depth == 0:
            return self._filter(chance)
        left, right = self._spansets(chance, depth - 1), self._spansets(chance, depth - 1)
        joined = f"{left} {chance.choice((*ast.LOGIC, *ast.STRUCTURAL))} {right}"
        return f"({joined})" if chance.random() < 0.4 else joined

    def _filter(self, chance: random.Random) -> str:
        if chance.random() < 0.4:
            # What many spans satisfy: most relations of rare spans find nothing.
            field = chance.choice(self._common)
            value = self._literal(chance.choice(self._values[field]))
            return chance.choice(("{ }", f"{{ {field} = {value} }}", f"{{ {field} != {value} }}"))
        return f"{{ {self._condition(chance, chance.choice((0, 0, 1, 1, 2)))} }}"

    def _condition(self, chance: random.Random, depth: int) -> str:
        if depth:
            both = (
                f"{self._condition(chance, depth - 1)} {chance.choice(('&&', '&&', '||'))} {self._comparison(chance)}"
            )
            wrapped = chance.random()
            return f"!({both})" if wrapped < 0.08 else f"({both})" if wrapped < 0.4 else both
        return self._comparison(chance)

    def _comparison(self, chance: random.Random) -> str:
        field = chance.choice(self._fields)
        value = chance.choice(self._values[field])
        kind = value[0]
        if kind == "array":
            value = chance.choice(value[1])
        is_attribute = "." in field
        match chance.randrange(14):
            case 0 if is_attribute:
                if field.endswith("service.name"):
                    return f"{field} != nil"
                return f"{field} {chance.choice(('=', '!='))} nil"
            case 1 if field in self._numbers:
                return self._calculation(chance, field, value)
            case 2 if is_attribute:
                # A value of another field, mostly of another type.
                other = chance.choice(self._values[chance.choice(self._fields)])
                if other[0] not in ("array", ast.BOOL, ast.STATUS, ast.KIND):
                    return f"{field} {chance.choice(('=', '!=', '>'))} {self._literal(other)}"
            case 3 if kind == ast.BOOL:
                return chance.choice((field, f"!{field}"))
            case 4:
                field_of_same = chance.choice(self._fields)
                if {self._values[field_of_same][0][0], kind} <= {ast.INT, ast.FLOAT, ast.DURATION}:
                    return f"{field} {chance.choice(_ORDER)} {field_of_same}"
            case 5 | 6 if value[0] == ast.STRING:
                return f"{field} {chance.choice(('=~', '!~'))} {self._pattern(chance, value[1])}"
        if value[0] in (ast.BOOL, ast.STATUS, ast.KIND):
            return f"{field} {chance.choice(('=', '!='))} {self._literal(value)}"
        return f"{field} {chance.choice(('=', '=', *_ORDER))} {self._literal(value)}"

    def _calculation(self, chance: random.Random, field: str, value: Value) -> str:
        operator = chance.choice(("+", "-", "*", "/", "%"))
        other = chance.choice(("2", "3", "1.5", chance.choice(self._numbers)))
        if operator in "/%" and not other[0].isdigit():
            other = "7"
        return f"{field} {operator} {other} {chance.choice(_ORDER)} {self._literal(value)}"

    def _pattern(self, chance: random.Random, text: str) -> str:
        cut = chance.randrange(len(text) + 1)
        pattern = chance.choice((re.escape(text[:cut]) + ".*", ".*" + re.escape(text[cut:]), re.escape(text), ".+"))
        return json.dumps(pattern.replace("\\ ", " ").replace("\\-", "-"), ensure_ascii=False)

    def _literal(self, value: Value) -> str:
        kind, found = value
        if kind == ast.STRING:
            return json.dumps(found, ensure_ascii=False)
        if kind == ast.BOOL:
            return str(found).lower()
        if kind == ast.DURATION:
            return f"{found}ns"
        if kind == ast.FLOAT:
            text = repr(found)
            return text if re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", text) else "1.5"
        # The digits of the least number are too many without their sign.
        return "minInt" if found == -(1 << 63) else str(found)
