"""Templates of labels and annotations: Go's `text/template` with the functions of Prometheus.

A template that fails gives its error as text, as in Prometheus: an alert without a description is better than none.
Steps, size and queries of one expansion are limited.
"""

from __future__ import annotations

import ipaddress
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakerunner.model.errors import BadInput, LakeError, LimitHit
from lakerunner.query.logql.stages.go_errors import GoError
from lakerunner.query.logql.stages.quantities import number
from lakerunner.query.logql.stages.template.functions import texts, values
from lakerunner.query.logql.stages.template.functions.regexps import count, replace_all
from lakerunner.query.logql.stages.template.functions.signature import ANY, STRING, Function, takes
from lakerunner.query.logql.stages.template.go_fmt import printed, sprintf
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.logql.stages.template.go_types import Duration, Labels, Struct, Value, type_name
from lakerunner.query.logql.stages.template.interpreter import TemplateError
from lakerunner.query.logql.stages.template.interpreter import expand as execute
from lakerunner.query.logql.stages.template.limits import Meter
from lakerunner.query.logql.stages.template.parser import parse
from lakerunner.query.syntax.durations import is_duration, parse_duration_ms
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.evaluation.vector import Ask, Sample

#: The variables that every template has.
_DEFINITIONS = (
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
)
#: Characters of an expanded label or annotation; longer ones are refused.
MAX_TEXT = 64 << 10
#: Queries that one expansion may ask.
_MAX_QUERIES = 10
_BUILTINS = {function.name: function for function in values.FUNCTIONS if function.name not in ("default", "fromJson")}
_SAMPLE, _VECTOR = "*template.sample", "template.queryResult"
_LARGE, _SMALL = ("k", "M", "G", "T", "P", "E", "Z", "Y"), ("m", "u", "n", "p", "f", "a", "z", "y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_WORD = re.compile(r"\w(?:\w|(?<=[^\W\d_])['.:](?=[^\W\d_])|(?<=\d)[,.;'](?=\d))*")


class _Vector(list[Struct]):
    go_type = _VECTOR


@dataclass(frozen=True, slots=True)
class Scope:
    """What templates of one evaluation may use besides their sample."""

    time_ms: int
    ask: Ask
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    #: Raises when the evaluation is no longer wanted.
    check: Callable[[], object] = bool


def check_template(text: str) -> None:
    """Raise a ParseError if the text is no template. Its positions are offsets into `text`."""
    try:
        parse(_DEFINITIONS + text, _NAMES)
    except ParseError as error:
        shift = len(_DEFINITIONS)
        start, end = max(0, error.start - shift), max(0, error.end - shift)
        raise ParseError(error.reason, text=text, start=start, end=end, language="template") from None


def expand(rule: str, text: str, sample: Sample, scope: Scope) -> str:
    """The text of a label or annotation of the rule's alert for a sample."""
    if "{{" not in text and len(text) <= MAX_TEXT:
        return text
    name = f"__alert_{rule}"
    try:
        template = parse(_DEFINITIONS + text, _NAMES)
    except ParseError as error:
        line = error.text[: error.start].count("\n") + 1
        return f"<error expanding template: error parsing template {name}: template: {name}:{line}: {error.reason}>"
    dot = Struct(
        "struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }",
        {
            "Labels": Labels(sample.labels),
            "ExternalLabels": Labels(scope.external_labels),
            "ExternalURL": scope.external_url,
            "Value": sample.value if sample.histogram is None else str(sample.histogram),
        },
    )
    try:
        made = execute(template, name, dot, _functions(scope), Meter(scope.check))
        if len(made) > MAX_TEXT:
            raise LimitHit(f"the text is longer than {MAX_TEXT:,} characters (fixed)")
    except TemplateError as error:
        return f"<error expanding template: error executing template {name}: {error}>"
    except LimitHit as error:
        return f"<error expanding template: error executing template {name}: {error.message}>"
    return made


def _functions(scope: Scope) -> dict[str, Function]:
    asked = 0

    def query(text: str) -> Value:
        nonlocal asked
        asked += 1
        if asked > _MAX_QUERIES:
            raise LimitHit(f"a template asks more than {_MAX_QUERIES} queries (fixed)")
        try:
            found = scope.ask(text, scope.time_ms)
        except BadInput as error:
            raise GoError(error.message) from None
        except LakeError as error:
            raise GoError(str(error)) from None
        return _Vector(_sample(each) for each in found)

    path = urllib.parse.urlsplit(scope.external_url).path
    own = (
        takes("query", (STRING,), query),
        Function("now", (), lambda: scope.time_ms / 1000.0),
        Function("pathPrefix", (), lambda: path),
        Function("externalURL", (), lambda: scope.external_url),
    )
    return {**_BUILTINS, **_FUNCTIONS, **{function.name: function for function in own}}


def _sample(sample: Sample) -> Struct:
    value: Any = sample.value if sample.histogram is None else str(sample.histogram)
    return Struct(_SAMPLE, {"Labels": Labels(sample.labels), "Value": value})


def _first(vector: Sequence[Value]) -> Value:
    if not vector:
        raise GoError("first() called on vector with no elements")
    return vector[0]


def _float(value: Value) -> float:
    if isinstance(value, bool):
        raise GoError("can't convert bool to float")
    if isinstance(value, Duration):
        return int(value) / 1e9
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        return number(value)
    raise GoError(f"can't convert {'<nil>' if value is None else type_name(value)} to float")


def _short(value: float) -> str:
    return sprintf("%.4g", [value])


def _odd(value: float) -> bool:
    return math.isnan(value) or math.isinf(value)


def _scaled(value: float, prefixes: Sequence[str], base: float) -> str:
    prefix = ""
    for each in prefixes:
        if abs(value) < base:
            break
        prefix, value = each, value / base
    return _short(value) + prefix


def _small(value: float) -> str:
    prefix = ""
    for each in _SMALL:
        if abs(value) >= 1:
            break
        prefix, value = each, value * 1000
    return _short(value) + prefix


def _humanize(given: Value) -> str:
    value = _float(given)
    if value == 0 or _odd(value):
        return _short(value)
    return _scaled(value, _LARGE, 1000) if abs(value) >= 1 else _small(value)


def _humanize_1024(given: Value) -> str:
    value = _float(given)
    return _short(value) if abs(value) <= 1 or _odd(value) else _scaled(value, _BINARY, 1024)


def _humanize_duration(given: Value) -> str:
    value = _float(given)
    if _odd(value):
        return _short(value)
    if value == 0:
        return _short(value) + "s"
    if abs(value) < 1:
        return _small(value) + "s"
    sign = "-" if value < 0 else ""
    value = abs(value)
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else f"{sign}{_short(value)}s"


def _time(value: float) -> Time:
    if _odd(value):
        raise GoError("value is NaN or Inf")
    nanoseconds = value * 1e9
    if not -(2.0**63) <= nanoseconds <= 2.0**63:
        shown = printed(value)
        raise GoError(f"{shown} cannot be represented as a nanoseconds timestamp since it overflows int64")
    # Prometheus' times have milliseconds.
    return Time.of_ns(int(int(nanoseconds) / 1_000_000) * 1_000_000)


def _humanize_timestamp(given: Value) -> str:
    value = _float(given)
    return _short(value) if _odd(value) else printed(_time(value))


def _split_host(text: str) -> tuple[str, str] | None:
    """Host and port, as Go's `net.SplitHostPort` splits them; None where it refuses."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return None
    if text.startswith("["):
        end = text.find("]")
        if end < 0 or text[end + 1 : end + 2] != ":" or ":" in text[end + 2 :]:
            return None
        host, port = text[1:end], text[end + 2 :]
        return None if "[" in host or "[" in port or "]" in port else (host, port)
    return None if ":" in host or any(c in text for c in "[]") else (host, port)


def _strip_port(text: str) -> str:
    split = _split_host(text)
    return text if split is None else split[0]


def _strip_domain(text: str) -> str:
    host, port = _split_host(text) or (text, "")
    try:
        ipaddress.ip_address(host)
        return text
    except ValueError:
        pass
    host = host.split(".")[0]
    return f"{host}:{port}" if port else host


def _title(text: str) -> str:
    """The first letter of each word in title case; a word is what Unicode calls one.

    >>> _title("don't a.b x-y low_water")
    "Don't A.b X-Y Low_water"
    """
    return _WORD.sub(lambda found: _titled(found[0]), text)


def _titled(word: str) -> str:
    for at, c in enumerate(word):
        if c.isalpha():
            changed = c.title()
            return word[:at] + (changed if len(changed) == 1 else c) + word[at + 1 :]
    return word


def _parse_duration(text: str) -> float:
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text)
    if body == "0":
        return 0.0
    if body == "" or not is_duration(body):
        reason = "empty duration string" if not text else f'not a valid duration string: "{text}"'
        raise GoError(reason)
    return sign * parse_duration_ms(body) / 1000.0


def _link(tab: int, text: str) -> str:
    return f"/graph?g0.expr={texts.url_encoded(text)}&g0.tab={tab}"


_FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        takes("first", (_VECTOR,), _first),
        takes("label", (STRING, _SAMPLE), lambda name, sample: sample.fields["Labels"].get(name, "")),
        takes("value", (_SAMPLE,), lambda sample: sample.fields["Value"]),
        takes("strvalue", (_SAMPLE,), lambda sample: sample.fields["Labels"].get("__value__", "")),
        takes("args", (ANY,), lambda *given: {f"arg{at}": value for at, value in enumerate(given)}, variadic=True),
        takes(
            "reReplaceAll",
            (STRING, STRING, STRING),
            lambda pattern, replacement, text: replace_all(pattern, text, replacement),
        ),
        takes("safeHtml", (STRING,), lambda text: text),
        takes("match", (STRING, STRING), lambda pattern, text: count(pattern, text) > 0),
        takes("title", (STRING,), _title),
        takes("toUpper", (STRING,), texts.upper),
        takes("toLower", (STRING,), texts.lower),
        takes("graphLink", (STRING,), partial(_link, 0)),
        takes("tableLink", (STRING,), partial(_link, 1)),
        takes(
            "sortByLabel",
            (STRING, _VECTOR),
            lambda name, vector: _Vector(sorted(vector, key=lambda each: each.fields["Labels"].get(name, ""))),
        ),
        takes("stripPort", (STRING,), _strip_port),
        takes("stripDomain", (STRING,), _strip_domain),
        takes("humanize", (ANY,), _humanize),
        takes("humanize1024", (ANY,), _humanize_1024),
        takes("humanizeDuration", (ANY,), _humanize_duration),
        takes("humanizePercentage", (ANY,), lambda given: _short(_float(given) * 100) + "%"),
        takes("humanizeTimestamp", (ANY,), _humanize_timestamp),
        takes("toTime", (ANY,), lambda given: _time(_float(given))),
        takes("toDuration", (ANY,), lambda given: Duration(int(_float(given) * 1e9))),
        takes("parseDuration", (STRING,), _parse_duration),
        takes("urlQueryEscape", (STRING,), texts.url_encoded),
    )
}
_NAMES = frozenset({*_BUILTINS, *_FUNCTIONS, "query", "now", "pathPrefix", "externalURL"})
