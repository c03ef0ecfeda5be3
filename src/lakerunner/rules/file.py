"""Reads a rule file: YAML with groups of rules, as Prometheus has them, and `materialize` beside `record` and `alert`.

Nothing is guessed: an unknown field, a field twice, or one of the wrong type is an error at its line and column. The
queries themselves are checked by `check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from lakerunner.model.compute import Compute
from lakerunner.query.syntax.durations import is_duration, parse_duration_ms
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.definitions import (
    DEFAULT_MAX_SERIES,
    LANGUAGE_OF_SIGNAL,
    LANGUAGES,
    PROMQL,
    Alert,
    Group,
    Materialize,
    Record,
    Rule,
)
from lakerunner.rules.source import LANGUAGE, Source, span_of

#: Characters of one file.
MAX_FILE_LENGTH = 4 << 20
#: Nodes of the YAML tree, aliases followed: a file of a few lines may otherwise stand for billions.
_MAX_NODES = 200_000
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_COMPUTE = re.compile(r"\s*([a-z]+)\s*(?:\(\s*(.+?)\s*\))?\s*", re.DOTALL)
_NULL = "tag:yaml.org,2002:null"

Fields = Mapping[str, yaml.Node]


def read_rules(text: str) -> tuple[Group, ...]:
    """The groups of a rule file. ParseError, a BadInput that points into the text, if it is none.

    >>> [group.name for group in read_rules("groups: [{name: a, rules: []}]")]
    ['a']
    """
    if len(text) > MAX_FILE_LENGTH:
        reason = f"it has {len(text):,} characters, more than {MAX_FILE_LENGTH:,}"
        raise ParseError(reason, text=text[:80], start=0, end=0, language=LANGUAGE, hint="split it")
    root = _composed(text)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _NULL):
        return ()
    return _Reader(text).groups(root)


def _composed(text: str) -> yaml.Node | None:
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = mark.index if mark is not None else 0
        reason = f"it is not YAML: {error.problem or error.context}"
        raise ParseError(reason, text=text, start=at, end=at + 1, language=LANGUAGE) from None
    except (yaml.YAMLError, RecursionError) as error:
        at = getattr(error, "position", 0)
        reason = "it nests too deep" if isinstance(error, RecursionError) else f"it is not YAML: {error}"
        raise ParseError(reason, text=text, start=at, end=at + 1, language=LANGUAGE) from None


@dataclass
class _Reader:
    text: str
    nodes: int = 0

    def groups(self, root: yaml.Node) -> tuple[Group, ...]:
        fields = self._fields(root, "a rule file", ("groups",))
        if "groups" not in fields:
            return ()
        found = [self._group(node) for node in self._list(fields["groups"], "groups")]
        seen: set[str] = set()
        for group, node in zip(found, self._list(fields["groups"], "groups"), strict=True):
            if group.name in seen:
                raise self._error(node, f"the group {group.name!r} is there twice")
            seen.add(group.name)
        return tuple(found)

    def _group(self, node: yaml.Node) -> Group:
        known = ("name", "interval", "query_offset", "limit", "labels", "language", "rules")
        fields = self._fields(node, "a group", known)
        if "name" not in fields or not self._text(fields["name"], "name"):
            raise self._error(node, "a group has no name")
        language = self._language(fields, PROMQL)
        mark = node.start_mark
        rules = fields.get("rules")
        nodes = [] if rules is None else self._list(rules, "rules")
        return Group(
            name=self._text(fields["name"], "name"),
            interval_s=self._seconds(fields, "interval"),
            rules=tuple(self._rule(each, language) for each in nodes),
            limit=self._whole(fields, "limit", 0, 0),
            query_offset_s=self._seconds(fields, "query_offset"),
            labels=self._labels(fields, "labels"),
            language=language,
            source_position=(mark.line + 1, mark.column + 1),
        )

    def _rule(self, node: yaml.Node, language: str) -> Rule:
        names = [self._key(key) for key, _ in self._pairs(node, "a rule")]
        kinds = [name for name in _KINDS if name in names]
        if len(kinds) != 1:
            has = "has none" if not kinds else "has " + " and ".join(kinds)
            raise self._error(node, f"a rule has one of {', '.join(_KINDS)}; this one {has}")
        known, read = _KINDS[kinds[0]]
        fields = self._fields(node, f"a rule with `{kinds[0]}`", known)
        source = Source(self.text, span_of(node), {name: span_of(value) for name, value in fields.items()})
        return read(self, node, fields, language, source)

    def materialize(self, node: yaml.Node, fields: Fields, _: str, source: Source) -> Materialize:
        name = self._metric_name(fields, "materialize")
        signal = self._one_of(self._required(node, fields, "signal"), "signal", tuple(LANGUAGE_OF_SIGNAL))
        compute, operand = self._compute(fields)
        return Materialize(
            name=name,
            signal=signal,
            match=self._text(self._required(node, fields, "match"), "match"),
            dimensions=self._dimensions(fields),
            compute=compute,
            field=operand,
            max_series=self._whole(fields, "max_series", DEFAULT_MAX_SERIES, 1),
            labels=self._labels(fields, "labels"),
            source=source,
        )

    def record(self, node: yaml.Node, fields: Fields, language: str, source: Source) -> Record:
        return Record(
            record=self._metric_name(fields, "record"),
            expr=self._text(self._required(node, fields, "expr"), "expr"),
            labels=self._labels(fields, "labels"),
            language=self._language(fields, language),
            source=source,
        )

    def alert(self, node: yaml.Node, fields: Fields, language: str, source: Source) -> Alert:
        name = self._text(fields["alert"], "alert")
        if not name:
            raise self._error(fields["alert"], "an alert has no name")
        return Alert(
            alert=name,
            expr=self._text(self._required(node, fields, "expr"), "expr"),
            for_s=self._seconds(fields, "for") or 0.0,
            keep_firing_for_s=self._seconds(fields, "keep_firing_for") or 0.0,
            labels=self._labels(fields, "labels"),
            annotations=self._labels(fields, "annotations"),
            language=self._language(fields, language),
            source=source,
        )

    def _compute(self, fields: Fields) -> tuple[Compute, str]:
        if "compute" not in fields:
            return Compute.COUNT, ""
        text = self._text(fields["compute"], "compute")
        found = _COMPUTE.fullmatch(text)
        if found is None or found[1] not in Compute.__members__.values():
            raise self._error(fields["compute"], f"cannot compute {text!r}", f"use one of {_computes()}")
        compute = Compute(found[1])
        if compute.needs_field != bool(found[2]):
            reason = f"{compute} needs a field" if compute.needs_field else f"{compute} has no field"
            raise self._error(fields["compute"], reason, f"use one of {_computes()}")
        return compute, found[2] or ""

    def _dimensions(self, fields: Fields) -> tuple[str, ...]:
        nodes = self._list(fields["dimensions"], "dimensions") if "dimensions" in fields else []
        found: list[str] = []
        for node in nodes:
            name = self._text(node, "a dimension")
            if not name or name in found:
                raise self._error(node, f"the dimension {name!r} is there twice" if name else "a dimension has no name")
            found.append(name)
        return tuple(found)

    def _metric_name(self, fields: Fields, key: str) -> str:
        name = self._text(fields[key], key)
        if not _METRIC_NAME.fullmatch(name):
            hint = "use letters, digits, `_` and `:`, and no digit first"
            raise self._error(fields[key], f"{name!r} is no name of a metric", hint)
        return name

    def _labels(self, fields: Fields, key: str) -> dict[str, str]:
        if key not in fields:
            return {}
        labels: dict[str, str] = {}
        for name_node, value in self._pairs(fields[key], key):
            name = self._key(name_node)
            if not _LABEL_NAME.fullmatch(name) or name == "__name__":
                raise self._error(name_node, f"{name!r} is no name of a label")
            if name in labels:
                raise self._error(name_node, f"{name!r} is there twice")
            labels[name] = self._text(value, name)
        return labels

    def _language(self, fields: Fields, default: str) -> str:
        return self._one_of(fields["language"], "language", LANGUAGES) if "language" in fields else default

    def _one_of(self, node: yaml.Node, name: str, words: Sequence[str]) -> str:
        word = self._text(node, name)
        if word not in words:
            raise self._error(node, f"{name} is {word!r}", f"use one of {', '.join(words)}")
        return word

    def _seconds(self, fields: Fields, key: str) -> float | None:
        if key not in fields:
            return None
        text = self._text(fields[key], key)
        if text == "0":
            return 0.0
        if not is_duration(text):
            raise self._error(fields[key], f"{key}: {text!r} is no duration", "write for example 30s or 1h30m")
        return parse_duration_ms(text) / 1000

    def _whole(self, fields: Fields, key: str, default: int, least: int) -> int:
        if key not in fields:
            return default
        text = self._text(fields[key], key)
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or int(text) < least:
            raise self._error(fields[key], f"{key}: {text!r} is no whole number of at least {least}")
        return int(text)

    def _required(self, node: yaml.Node, fields: Fields, key: str) -> yaml.Node:
        if key not in fields:
            raise self._error(node, f"`{key}` is missing")
        return fields[key]

    def _fields(self, node: yaml.Node, what: str, known: Sequence[str]) -> dict[str, yaml.Node]:
        fields: dict[str, yaml.Node] = {}
        for key_node, value in self._pairs(node, what):
            key = self._key(key_node)
            if key not in known:
                raise self._error(key_node, f"{what} has no field {key!r}", f"it may have {', '.join(known)}")
            if key in fields:
                raise self._error(key_node, f"{key!r} is there twice")
            fields[key] = value
        return fields

    def _pairs(self, node: yaml.Node, what: str) -> list[tuple[yaml.Node, yaml.Node]]:
        self._count(node)
        if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
            return []
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} is no mapping of names to values")
        return list(node.value)

    def _list(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        self._count(node)
        if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, f"{what} is no list")
        return list(node.value)

    def _key(self, node: yaml.Node) -> str:
        return self._text(node, "a name")

    def _text(self, node: yaml.Node, what: str) -> str:
        self._count(node)
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"{what} is no text")
        return "" if node.tag == _NULL else str(node.value)

    def _count(self, node: yaml.Node) -> None:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise self._error(node, f"the file has more than {_MAX_NODES:,} values", "split it")

    def _error(self, node: yaml.Node, reason: str, hint: str | None = None) -> ParseError:
        span = span_of(node)
        # A mapping ends where the next token begins; its first line says enough.
        end = self.text.find("\n", span.start)
        last = span.end if end < 0 else min(span.end, end)
        return ParseError(reason, text=self.text, start=span.start, end=last, language=LANGUAGE, hint=hint)


def _computes() -> str:
    return ", ".join(f"{each}(FIELD)" if each.needs_field else str(each) for each in Compute)


_Read = Callable[[_Reader, yaml.Node, Fields, str, Source], Rule]
#: What makes a rule one of its kind -> the fields that it may have, and how they are read.
_KINDS: dict[str, tuple[tuple[str, ...], _Read]] = {
    "materialize": (
        ("materialize", "signal", "match", "dimensions", "compute", "max_series", "labels"),
        _Reader.materialize,
    ),
    "record": (("record", "expr", "labels", "language"), _Reader.record),
    "alert": (("alert", "expr", "for", "keep_firing_for", "labels", "annotations", "language"), _Reader.alert),
}
