"""Random LogQL over the generated records: mostly what finds something, now and then what does not.

Left out, because the answer of Loki is an accident there:
- label filters after `drop`, `keep` and `label_format`: Loki may apply them while it parses the line;
- metric queries over entries with errors that no label filter removed: whether Loki notices depends on the aggregation.
And metric queries over parsed labels that are empty: to us an empty label is absent, as it is to Prometheus.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.differential.logql import records

#: Labels by the stage that makes them, for each service: (texts, numbers, durations, sizes).
_STORED = {
    "api": (("severity_text", "detected_level", "host_name", "scope_name"), ("http_status_code", "latency_ms"), (), ()),
    "db": (("severity_text", "slow", "host_name"), ("db_rows", "severity_number"), (), ()),
    "web": (("client_address", "host_name", "severity_text"), ("http_status_code", "size"), (), ()),
    "text": (("shard", "detected_level", "host_name"), ("temp",), (), ()),
}
_PARSED = {
    "api": (
        ("level", "msg", "user_name", "user_vip"),
        ("status", "latency_ms_extracted", "user_id"),
        ("took",),
        ("size",),
    ),
    "db": (("level", "msg", "table"), ("rows", "ratio"), ("took",), ("size",)),
    "web": (("method", "path", "user", "ip"), ("status", "bytes", "seconds"), (), ()),
    "text": (("word",), ("temp",), (), ()),
}
_PARSERS: dict[str, tuple[str, ...]] = {
    "api": ("| json",),
    "db": ("| logfmt", "| logfmt --strict"),
    "web": (
        '| pattern `<ip> - <user> "<method> <path> <_>" <status> <bytes> <seconds>`',
        '| regexp `^(?P<ip>\\S+) - (?P<user>\\S+) "(?P<method>\\w+) (?P<path>\\S+)`',
        '| regexp "(?P<status>\\\\d{3}) (?P<bytes>\\\\d+) (?P<seconds>[0-9.]+)$"',
    ),
    "text": ("| unpack", "| pattern `<word> <_>`", "| decolorize", "| regexp `(?P<word>\\w+)`"),
}
#: Those that may make empty labels.
_EMPTY_PARSERS: dict[str, tuple[str, ...]] = {
    "api": (
        '| json level, who="user.name", first="tags[0]", n="[\\"odd key\\"]"',
        '| json status="status", size, took',
    ),
    "db": ("| logfmt --keep-empty", '| logfmt rows, lvl="level", took'),
    "web": (),
    "text": (),
}
_WORDS = {
    "api": ("order", "failed", "zoë", '"status":500', "timeout", "cart"),
    "db": ("slow", "level=error", "orders", "took=", "10.0.0.1"),
    "web": ("GET", "/cart", " 404 ", "alice", "HTTP"),
    "text": ("worker", "ERROR", "ログイン", "red", "line", "🔥"),
}
_REGEXES = {
    "api": ("fail|time", "status.: 5..", "(?i)ORDER", "user.*bob", "[0-9]{3}"),
    "db": ("slow|reset", "rows=[0-9]+", "(?i)LEVEL=warn", "size=.*KB"),
    "web": ("^10\\\\.", "(GET|POST) /cart", "[45]0[34]", "0$"),
    "text": ("^worker", "(?i)error", "[0-4]$", "fail.*status", "\\\\d"),
}
_PATTERNS = {
    "api": ("<_>order<_>", '{"level": "info"<_>', "<_>}"),
    "db": ("level=info <_>", "<_> rows=<_>", "<_>took=3ms<_>"),
    "web": ('<_> - alice "<_>', "10.0.0.1 <_>", "<_> 200 <_> <_>"),
    "text": ("worker <_> started", "<_>worker<_>", "<_>"),
}
_MATCHERS = (
    'deployment_environment="prod"',
    'deployment_environment!="canary"',
    'k8s_pod_name=~"pod-[01]"',
    'k8s_pod_name!~".*2"',
    'service_namespace=~"sh.p|back"',
    'cloud_region=""',
    'service_name!="nope"',
)
_VALUES = (*records.LEVELS, *records.USERS, "s1", "host-0", "GET", "/cart", "true", "10.0.0.1", "orders", "")
_VALUE_REGEXES = ("err|warn", "error|warn", "(?i)INFO", "host-[1-9]", "a.+e", "[a-m].*", "s.", "/.*")
_NUMBERS = ("0", "5", "200", "404", "-1.5", "1e2", "20")
_LABELS = ("service_name", "deployment_environment", "host_name", "detected_level", "k8s_pod_name", "nope", "level")
_COUNTING = ("rate", "count_over_time", "count_over_time", "bytes_rate", "bytes_over_time", "absent_over_time")
_SUBJECTS = ("sum", "avg", "min", "max", "count", "stddev", "stdvar")
_UNWRAPPED = ("sum", "avg", "min", "max", "first", "last", "stddev", "stdvar")
_GROUPED = frozenset({"avg", "min", "max", "first", "last", "stddev", "stdvar"})
_TEMPLATES = (
    "{{.service_name}} {{.host_name}}",
    "{{ __line__ | upper }}",
    "{{.level | ToUpper}}-{{.status}}",
    '{{ if eq .detected_level \\"error\\" }}bad{{ else }}good{{ end }}',
    '{{ .k8s_pod_name | replace \\"pod\\" \\"p\\" | trunc 2 }}',
    '{{ printf \\"%05s|%-4s\\" .shard .host_name }}',
    '{{ regexReplaceAll \\"[0-9]+\\" __line__ \\"N\\" }}',
    "{{ len __line__ }} {{ __timestamp__ | unixEpoch }}",
    "{{ substr 0 6 __line__ }}{{ with .shard }}[{{ . }}]{{ end }}",
)


_LABEL_TEMPLATES = ("x{{.severity_text}}", "{{ .host_name | upper }}", '{{ .k8s_pod_name | trimPrefix \\"pod-\\" }}')
_MIXED = ('{service_name=~"api|db"}', '{service_namespace="shop"}', '{service_name=~".+"}')


@dataclass(slots=True)
class Grammar:
    chance: random.Random

    def log_query(self) -> str:
        service = self._service()
        if self._rarely():
            return self._mixed_query()
        stages = [self._line_filter(service) for _ in range(self._some(2))]
        parsed = False
        for _ in range(self.chance.randrange(4)):
            if not parsed and self.chance.random() < 0.5:
                stages.append(self.chance.choice(_PARSERS[service] + _EMPTY_PARSERS[service]))
                parsed = True
            else:
                stages.append(self._line_filter(service) if self._rarely() else self._label_filter(service, parsed))
        if self.chance.random() < 0.3:
            stages.append(self._format(service, parsed))
            if self._rarely():
                stages.append(self._line_filter(service))
        return " ".join((self._selector(service), *stages))

    def _mixed_query(self) -> str:
        """Several services, parsed one way after the other."""
        selector = self.chance.choice(_MIXED)
        stages = [self.chance.choice(_PARSERS[self._service()]) for _ in range(self.chance.choice((1, 2)))]
        if self.chance.random() < 0.4:
            stages.append(self.chance.choice(('| line_format "{{.msg}} k={{.level}}" | logfmt', "| level=~`e.*|info`")))
        if self.chance.random() < 0.4:
            # Not by the name of an error: Loki compares the error of the first parser before the second one runs.
            stages.append(self.chance.choice(('| __error__!=""', '| __error__=""')))
        return " ".join((selector, *stages))

    def metric_query(self, depth: int) -> str:
        if depth == 0:
            return self._range_aggregate()
        match self.chance.randrange(12):
            case 0 | 1 | 2 | 3:
                return self._aggregate(depth - 1)
            case 4 | 5:
                return self._binary(depth - 1)
            case 6:
                return self._with_number(depth - 1)
            case 7:
                return self._set_operation(depth - 1)
            case 8:
                return self._label_replace(depth - 1)
            case 9:
                return f"({self.metric_query(depth - 1)})"
            case 10 if self._rarely():
                return f"vector({self.chance.randrange(5)})"
            case 11 if self._rarely():
                return f"{self.chance.choice(('sort', 'sort_desc'))}({self.metric_query(depth - 1)})"
        return self._range_aggregate()

    # -- selectors and filters ---------------------------------------------------------------------------------

    def _service(self) -> str:
        return self.chance.choice(records.SERVICES)

    def _some(self, most: int) -> int:
        return self.chance.choice([0, *range(most + 1)])

    def _rarely(self) -> bool:
        return self.chance.random() < 0.15

    def _selector(self, service: str) -> str:
        matchers = [f'service_name=~"{service}|nope"' if self._rarely() else f'service_name="{service}"']
        matchers += self.chance.sample(_MATCHERS, self._some(2))
        self.chance.shuffle(matchers)
        return "{" + ", ".join(matchers) + "}"

    def _line_filter(self, service: str) -> str:
        kind = self.chance.randrange(10)
        if kind < 5:
            texts = self.chance.sample(_WORDS[service], self.chance.choice((1, 1, 1, 2, 3)))
            return f"{self.chance.choice(('|=', '|=', '!='))} {' or '.join(map(_quoted, texts))}"
        if kind < 8:
            texts = self.chance.sample(_REGEXES[service], self.chance.choice((1, 1, 2)))
            return f"{self.chance.choice(('|~', '|~', '!~'))} {' or '.join(map(_quoted, texts))}"
        if kind == 8:
            return f"{self.chance.choice(('|>', '!>'))} `{self.chance.choice(_PATTERNS[service])}`"
        address = self.chance.choice(("10.0.0.0/16", "10.0.0.1", "192.168.0.0-192.168.255.255", "2001:db8::/32"))
        return f'{self.chance.choice(("|=", "!="))} ip("{address}")'

    def _label_filter(self, service: str, parsed: bool) -> str:
        return "| " + self._condition(service, parsed, 2)

    def _condition(self, service: str, parsed: bool, depth: int) -> str:
        if depth and self.chance.random() < 0.3:
            join = self.chance.choice((" and ", " or ", ", ", " "))
            both = f"{self._condition(service, parsed, depth - 1)}{join}{self._condition(service, parsed, depth - 1)}"
            return f"({both})" if self.chance.random() < 0.4 else both
        labels = _PARSED if parsed and self.chance.random() < 0.7 else _STORED
        texts, numbers, durations, sizes = labels[service]
        kind = self.chance.randrange(8)
        op = self.chance.choice((">", ">=", "<", "<=", "==", "!=", "="))
        if kind == 0 and durations:
            return f"{durations[0]} {op} {self.chance.choice(('3ms', '1s', '1h', '250us', '1.5s'))}"
        if kind == 1 and sizes:
            return f"{sizes[0]} {op} {self.chance.choice(('1KB', '1KiB', '512B', '10MB', '3KB'))}"
        if kind == 2 and service == "web":
            return f'client_address {self.chance.choice(("=", "!="))} ip("10.0.0.0/8")'
        if kind < 5 and numbers:
            return f"{self.chance.choice(numbers)} {op} {self.chance.choice(_NUMBERS)}"
        if self._rarely():
            return f'nope{self.chance.choice(("=", "!="))}"{self.chance.choice(("", "x"))}"'
        return f"{self.chance.choice(texts)}{self._text_comparison()}"

    def _text_comparison(self) -> str:
        if self.chance.random() < 0.6:
            return f"{self.chance.choice(('=', '!='))}{_quoted(self.chance.choice(_VALUES))}"
        return f'{self.chance.choice(("=~", "!~"))}"{self.chance.choice(_VALUE_REGEXES)}"'

    def _format(self, service: str, parsed: bool) -> str:
        texts, numbers, *_ = _PARSED[service] if parsed else _STORED[service]
        label, other = self.chance.choice(texts), self.chance.choice(numbers or texts)
        match self.chance.randrange(7):
            case 0 | 1:
                return f'| line_format "{self.chance.choice(_TEMPLATES)}"'
            case 2:
                return f'| label_format new={label}, text="{self.chance.choice(_TEMPLATES)}"'
            case 3:
                return f"| drop {label}, {other}" if not self._rarely() else f"| drop {label}{self._text_comparison()}"
            case 4:
                return f"| keep {label}, service_name"
            case 5:
                return f"| keep {label}{self._text_comparison()}, {other}"
        return "| decolorize"

    # -- metrics -----------------------------------------------------------------------------------------------

    def _range_aggregate(self) -> str:
        service = self._service()
        stages = [self._line_filter(service)] if self.chance.random() < 0.3 else []
        parsed = self.chance.random() < 0.5
        if parsed:
            stages.append(self.chance.choice(_PARSERS[service]))
        if self.chance.random() < 0.4:
            stages.append(self._label_filter(service, parsed))
        if self._rarely():
            stages.append(f'| label_format level="{self.chance.choice(_LABEL_TEMPLATES)}"')
        if self._rarely():
            stages.append('| line_format "{{.host_name}}: {{ __line__ | lower }}"')
        # Now and then without: both must refuse the entries that failed.
        if not parsed or self.chance.random() < 0.95:
            stages.append('| __error__=""')
        selector = self._selector(service)
        if self.chance.random() < 0.45:
            return self._unwrapped(service, selector, stages, parsed)
        op = self.chance.choice(_COUNTING)
        return f"{op}({' '.join((selector, *stages))}{self._range()})"

    def _unwrapped(self, service: str, selector: str, stages: list[str], parsed: bool) -> str:
        _, numbers, durations, sizes = _PARSED[service] if parsed else _STORED[service]
        choices = [(number, "") for number in numbers]
        choices += [(label, self.chance.choice(("duration", "duration_seconds"))) for label in durations]
        choices += [(label, "bytes") for label in sizes]
        label, conversion = self.chance.choice(choices)
        unwrap = f'| unwrap {f"{conversion}({label})" if conversion else label} | __error__=""'
        logs = f"{' '.join((selector, *stages, unwrap))}{self._range()}"
        grouping = f" by ({self._labels()})" if self.chance.random() < 0.7 else ""
        kind = self.chance.randrange(12)
        if kind == 0:
            return f"quantile_over_time({self.chance.choice(('0', '0.5', '0.9', '1'))}, {logs}){grouping}"
        if kind == 1:
            return f"{self.chance.choice(('rate', 'rate', 'absent_over_time', 'rate_counter'))}({logs})"
        op = self.chance.choice(_UNWRAPPED)
        return f"{op}_over_time({logs}){grouping if op in _GROUPED else ''}"

    def _range(self) -> str:
        offset = f" offset {self.chance.choice(('1m', '-30s', '2m30s', '1.5m'))}" if self._rarely() else ""
        return f" [{self.chance.choice(('30s', '1m', '90s', '2m', '5m', '10m'))}]{offset}"

    def _labels(self) -> str:
        return ", ".join(self.chance.sample(_LABELS, self.chance.randrange(3)))

    def _aggregate(self, depth: int) -> str:
        word = self.chance.choice(("by", "by", "without", ""))
        clause = f" {word} ({self._labels()})" if word else ""
        return f"{self.chance.choice(_SUBJECTS)}{clause} ({self.metric_query(depth)})"

    def _few(self, depth: int) -> str:
        """A vector with few labels, so that it matches others."""
        return f"{self.chance.choice(('sum', 'max', 'count'))} by ({self._labels()}) ({self.metric_query(depth)})"

    def _binary(self, depth: int) -> str:
        op = self.chance.choice(("+", "-", "*", "/", "%", "^", ">", "<", ">=", "<=", "==", "!="))
        op += " bool" if op in (">", "<", ">=", "<=", "==", "!=") and self.chance.random() < 0.4 else ""
        by = self.chance.choice(("service_name", "host_name", "deployment_environment", "detected_level"))
        left = f"sum by ({by}) ({self.metric_query(depth)})"
        right = f"sum by ({by}) ({self.metric_query(depth)})"
        if self._rarely():
            left = f"sum by ({by}, k8s_pod_name) ({self.metric_query(depth)})"
            return f"{left} {op} on ({by}) group_left {right}"
        modifier = self.chance.choice(("", "", f" on ({by})", " ignoring (nope)"))
        return f"{left} {op}{modifier} {right}"

    def _with_number(self, depth: int) -> str:
        op = self.chance.choice(("+", "-", "*", "/", "%", "^", ">", "<", ">=", "<=", "==", "!="))
        op += " bool" if op in (">", "<", "==") and self.chance.random() < 0.4 else ""
        number = self.chance.choice(("0", "2", "0.5", "-1", "100"))
        vector = self.metric_query(depth)
        return f"{vector} {op} {number}" if self.chance.random() < 0.6 else f"{number} {op} {vector}"

    def _set_operation(self, depth: int) -> str:
        op = self.chance.choice(("and", "or", "unless"))
        return f"{self._few(depth)} {op} {self._few(depth)}"

    def _label_replace(self, depth: int) -> str:
        source = self.chance.choice(("service_name", "k8s_pod_name", "host_name", "nope"))
        pattern = self.chance.choice(("(.*)", "(.).*", "pod-(?P<n>.)", "x"))
        replacement = self.chance.choice(("$1", "x-${1}", "fixed", ""))
        # Series that become equal are another matter: Loki joins their samples to one series, or repeats it.
        target = "new" if (replacement, pattern) != ("$1", "(.*)") else self.chance.choice(("new", source))
        return f'label_replace({self._few(depth)}, "{target}", "{replacement}", "{source}", "{pattern}")'


def _quoted(text: str) -> str:
    return f"`{text}`" if '"' in text else f'"{text}"'
