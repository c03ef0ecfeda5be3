"""Random materialization rules over logs, and queries that they may answer, nearly answer, or do not."""

from __future__ import annotations

import random

from lakerunner.model.compute import Compute
from lakerunner.query.rules.rule import RuleVersion
from tests.query.rules.rewrites.cases import Query, with_steps

MATCHERS = (
    '{service_name=~".+"}',
    '{service_name="api"}',
    '{service_name=~"api|cart"}',
    '{service_name=~"api.*"}',
    '{service_name=~".+", service_name!="cart"}',
    '{service_name=~".+", cloud_region="eu"}',
    '{service_name=~".+", cloud_region=~"eu.*"}',
    '{service_name=~"api|cart", cloud_region!="us"}',
    '{service_name=~".+", host!="own"}',
)
#: Narrower or other matchers that a query may have in place of the rule's.
NARROWER = (
    *MATCHERS,
    '{service_name="cart"}',
    '{service_name="api-test"}',
    '{service_name=~".+", cloud_region="us"}',
    '{service_name="api", cloud_region="eu-2"}',
    '{service_name=~".+", route="/a"}',
    '{service_name=~"api", host="h1"}',
    '{service_name=~".+", detected_level="error"}',
)
STAGES = (
    "",
    "",
    '|= "o"',
    '|= "error" or "500"',
    '!= "refused"',
    '|~ "time|err"',
    '| json | __error__=""',
    '| json | __error__="" | status="500"',
    '| json | status >= 500 | __error__=""',
    '| json status="status" | __error__="" | status=~"500|503"',
    '| json status="status", host="host" | __error__=""',
    '| json host="nothing" | __error__="" | label_format host=`{{ .host }}`',
    '| logfmt | __error__=""',
    '| logfmt --keep-empty | __error__=""',
    '| logfmt status="status", host="host"',
    '|= "status" | logfmt | __error__="" | host!=""',
    '| regexp "(?P<status>[0-9]{3})"',
    '| regexp "(?P<status>[0-9]{3})" | status!="200"',
    '| regexp "(?P<status>5[0-9]{2})?"',
    '| route="/a"',
    '| route=~"/a|/b"',
    '| json | __error__="" | drop host',
    '| json | __error__="" | keep status, service_name',
    "| label_format route=host",
    '| label_format status="{{.route}}-{{.host}}"',
    '| json | __error__="" | label_format host="{{ .status | upper }}" | host!="NONE"',
    '| json | __error__="" | line_format "{{.msg}} {{.status}}" |= "o"',
    '| line_format "{{ .route }}|{{ __line__ | trunc 12 }}"',
)
#: Stages that may fail, or that ask about failures. Rules with them seldom answer.
ODD_STAGES = (
    "| unpack",
    "| decolorize",
    "| json",
    '| json | status="500"',
    "| logfmt",
    '| __error__="" | json',
    '| json | __error__!=""',
)
#: What queries add to the stages of a rule.
FURTHER = (
    '| route="/a"',
    '| host="h1"',
    '| status="500"',
    '| status=~"500|503"',
    '| detected_level!="info"',
    '| route=~"/a.*"',
    '| status >= 500 | __error__=""',
    '|= "o"',
    '| __error__=""',
    '| service_name="parsed"',
    "| json",
    "| label_format route=host",
    '| line_format "{{.route}}" |= "/"',
)
VALUES = {
    "service_name": ("api", "cart", "api-test", "unknown_service"),
    "cloud_region": ("eu", "us"),
    "route": ("/a", "/b", ""),
    "host": ("h1", "own", ""),
    "status": ("500", "200"),
    "detected_level": ("info", "error", "unknown"),
    "msg": ("ok", "timeout"),
}
DIMENSIONS = ("service_name", "cloud_region", "route", "host", "status", "detected_level", "msg")
FIELDS = ("took", "size", "status", "duration(took)")
#: Labels whose different values rules count. They have few, which are told apart for certain.
COUNTED = ("route", "host", "status", "msg", "cloud_region")


def rule(rng: random.Random, number: int) -> RuleVersion:
    dimensions = rng.sample(DIMENSIONS, rng.randrange(0, 5))
    some = (Compute.COUNT, Compute.COUNT, Compute.BYTES, Compute.SUM, Compute.MIN, Compute.MAX, Compute.HISTOGRAM)
    compute = rng.choice((*some, Compute.DISTINCT))
    field = ""
    if compute is Compute.DISTINCT:
        field = rng.choice(COUNTED)
        dimensions = [name for name in dimensions if name != field]
    elif compute.needs_field:
        field = rng.choice(("took", "size", "size", "size", "status"))
    stages = rng.choice(STAGES if rng.random() < 0.9 else ODD_STAGES)
    match = f"{rng.choice(MATCHERS)} {stages}".strip()
    pairs = tuple((name, name) for name in dimensions)
    return RuleVersion(number, 1, f"rule_{number}", "logs", match, pairs, compute, field)


def query(rng: random.Random, rules: list[RuleVersion]) -> Query:
    """Mostly about what one of the rules keeps, with something changed."""
    part = _part(rng, rng.choice(rules))
    roll = rng.random()
    if roll < 0.12:
        part = f"{part} {rng.choice(('/', '+', '-', '>', 'or', 'and', 'unless'))} {_part(rng, rng.choice(rules))}"
    elif roll < 0.24:
        form = rng.choice(("topk(2, {})", "max({})", "{} > 2", "2 * {}", "{} or vector(0)", "count({})", "sort({})"))
        part = form.format(part)
    elif roll < 0.28:
        part = f'label_replace({part}, "x", "$1", "route", "/(.*)")'
    # Quantiles of histograms are refused unless a query allows approximate ones, and are compared elsewhere.
    return with_steps(rng, "logql", part, approximate="quantile" not in part and rng.random() < 0.9)


#: What may be changed in a query so that the rule it was made from does not answer it, one thing at a time.
ODD = ("matchers", "stages", "further", "by", "without", "width", "offset", "compute", "outer", "field", "errors")


def _part(rng: random.Random, rule: RuleVersion) -> str:
    odd = rng.choice(ODD) if rng.random() < 0.4 else ""
    cut = rule.match.index("}") + 1
    matchers, stages = rule.match[:cut], rule.match[cut:]
    kept = [name for name, _ in rule.dimensions]
    if odd == "matchers":
        matchers = rng.choice(NARROWER)
    elif rng.random() < 0.3 and kept:
        # A further matcher, so that the rule's are implied.
        matchers = f"{matchers[:-1]}, {_matcher(rng, kept)}}}"
    if odd == "stages":
        stages = f" {rng.choice((*STAGES, *ODD_STAGES))}"
    if odd == "further":
        stages = f"{stages} {rng.choice(FURTHER)}"
    elif rng.random() < 0.3 and kept:
        stages = f"{stages} | {_matcher(rng, kept)}"
    by = rng.sample(kept, rng.randrange(0, len(kept) + 1))
    if odd == "by":
        by.append(rng.choice(DIMENSIONS))
    grouping = f"by ({', '.join(dict.fromkeys(by))})"
    if odd == "without":
        grouping = f"without ({rng.choice(DIMENSIONS)})"
    width = rng.choice(("15s", "1m5s") if odd == "width" else ("10s", "30s", "1m", "2m"))
    offset = " offset 5s" if odd == "offset" else rng.choice(("", "", "", " offset 30s", " offset -20s"))
    compute = rng.choice(list(Compute)) if odd == "compute" else rule.compute
    if compute in (Compute.COUNT, Compute.BYTES):
        over = "count_over_time" if compute is Compute.COUNT else "bytes_over_time"
        rate = "rate" if compute is Compute.COUNT else "bytes_rate"
        outer = rng.choice(("max", "avg")) if odd == "outer" else "sum"
        return f"{outer} {grouping} ({rng.choice((over, over, rate))}({matchers}{stages} [{width}]{offset}))"
    if compute is Compute.DISTINCT:
        counted = rng.choice(COUNTED) if odd == "field" or rule.field not in COUNTED else rule.field
        there = "" if odd == "errors" else f' | {counted}!=""'
        each = ", ".join(dict.fromkeys((*by, counted)))
        inner = f"{rng.choice(('count_over_time', 'rate'))}({matchers}{stages}{there} [{width}]{offset})"
        return f"count {grouping} ({rng.choice(('sum', 'sum', 'max'))} by ({each}) ({inner}))"
    field = rng.choice(FIELDS) if odd == "field" else rule.field or "size"
    errors = "" if odd == "errors" else ' | __error__=""'
    inner = f"{matchers}{stages} | unwrap {field}{errors} [{width}]{offset}"
    if compute in (Compute.MIN, Compute.MAX):
        name = str(compute)
        if rng.random() < 0.5:
            return f"{name}_over_time({inner}) {grouping}"
        return f"{name} {grouping} ({name}_over_time({inner}))"
    if compute is Compute.HISTOGRAM and rng.random() < 0.6:
        # Quantiles are refused unless a query allows approximate ones.
        function = rng.choice(
            (f"avg_over_time({inner})", f"avg_over_time({inner})", f"quantile_over_time(0.9, {inner})")
        )
        return f"{function} {grouping}"
    return f"sum {grouping} ({rng.choice(('sum_over_time', 'sum_over_time', 'rate'))}({inner}))"


def _matcher(rng: random.Random, kept: list[str]) -> str:
    """A condition on a label, mostly one that the rule keeps."""
    name = rng.choice(kept) if rng.random() < 0.95 else rng.choice(DIMENSIONS)
    values = VALUES[name]
    if rng.random() < 0.3:
        return f'{name}{rng.choice(("=~", "!~"))}"{"|".join(rng.sample(values, 2))}"'
    return f'{name}{rng.choice(("=", "=", "!="))}"{rng.choice(values)}"'
