"""The words of the random expressions: metrics, matchers, numbers and durations in every way of writing them."""

from __future__ import annotations

FLOATS = (
    *("requests_total", "deltas_total", "temperature", "sparse", "flapping", "weird", "constant", "latency_count"),
    *("huge", "cancelling", "irregular", "started_total", "distinct", "versions", "sum", "a:b"),
)
CLASSIC = ("latency_bucket", "latency_bucket", "uneven_bucket", "endless_bucket", "strange_bucket", "hybrid")
NATIVE = (
    *("size", "custom", "sizes_delta", "queue", "mixed", "size", "custom", "mixed"),
    *("blind", "hollow", "below", "occupancy", "told", "hybrid"),
)
#: Names that stand inside the braces, in quotes.
QUOTED = ('"http.requests"', "'größe'", "`http.requests`", '"temperature"', '"sum"', r'"\x73ize"', r'"gr\u00f6\u00dfe"')
LABELS = ("job", "instance", "code", "le", "zone", "__name__", "missing", '"host.name"', "on", "version")
MATCHERS = (
    'job="api"',
    'job!="api"',
    'instance=~"i[01]"',
    'instance!~"i2|i3"',
    'code!="500"',
    'le!="1"',
    'missing=""',
    'zone!~".+"',
    'job=~"api|db"',
    "job='api'",
    "job=`db`",
    r'job="\x61pi"',
    r'job=~"\\w+"',
    '"host.name"=~"i.|"',
    'on!="x"',
    'version=~"v?1.*|"',
    'job=~"(?i)A.*"',
    'job!~""',
    'code=~""',
)
NAME_PATTERNS = (
    *("requests_total|temperature", "size|custom", "mixed|flapping", "latency_.+", "constant|sparse|deltas_total"),
    *("hybrid|blind", ".*_info", "http.+|sum", "uneven_bucket|endless_bucket|size"),
)
DURATIONS = (
    *("1m", "40s", "2m", "5m", "90s", "15s", "1m1ms", "10m", "5m", "2m", "3m30s"),
    *("1m + 30s", "max_of(step(), 1m)", "90", "1.5e2", "0x40", "(2m)", "2 * 60", "3m % 2m", "5m / 2", "2 ^ 6"),
    *("min_of(1m, 45s)", "step() + 1m", "range() + 1m", "max_of(range(), 1m)", "+90s", "-(-1m)", "2m - 30s * 2"),
)
OFFSETS = (
    *("1m", "-30s", "15s", "5m", "-1m30s", "(30s * 2)", "0s", "1ms", "-1ms"),
    *("step()", "-step()", "range()", "(step() * 2)", "-(1m)", "+30s", "min_of(1m, 2m)", "(1m - 2m)", "30", "-0x10"),
)
SUBQUERY_RANGES = ("2m", "5m", "61s", "3m", "1m30s", "(1m + 1m)", "max_of(range(), 2m)", "150")
SUBQUERY_STEPS = ("", "15s", "30s", "1m", "7s", "", "30", "max_of(step(), 15s)", "10s + 5s")
#: Parameters that change from step to step.
PARAMETERS = ("scalar(constant)", "time() % 3", "step() % 7", "scalar(temperature{instance='i0',job='api'})")
PLAIN_NUMBERS = ("0", "1", "2", "0.5", "-1", "3.25", "100", "NaN", "Inf", "-Inf", "1e3", "0.9", "0.1", "1m")
NUMBERS = (
    *PLAIN_NUMBERS,
    *(
        "0x1F",
        "017",
        "1_000",
        "1e-3",
        ".5",
        "5.",
        "1E+2",
        "iNf",
        "nan",
        "+Inf",
        "-0",
        "1h30m",
        "100ms",
        "1e300",
        "-2.5",
    ),
)
FILLS = (
    *(" fill(0)", " fill_left(1)", " fill_right(2)", " fill(NaN)", " fill(-Inf)", " fill(+0.5)"),
    *(" fill_left(1) fill_right(2)", " fill_right(0x10) fill_left(-1e3)"),
)
ARITHMETIC = ("+", "-", "*", "/", "%", "^", "atan2")
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
TRIMS = ("</", ">/")
SETS = ("and", "or", "unless")
PLAIN_AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
DATES = ("day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute", "month", "year")
