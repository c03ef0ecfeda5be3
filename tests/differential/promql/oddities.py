"""Series as they should not be, but are: odd names, odd bounds, overflow, observations of NaN, starts that overlap."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from lakerunner.query.series.histograms.histogram import Histogram, ResetHint
from tests.differential.promql.histograms import custom, exponential, full
from tests.differential.promql.samples import SCRAPE_MS, SCRAPES, START_MS, Series, put, quarter, scrapes

#: Sorted by runs of digits as numbers, some of them too long for one.
_VERSIONS = (
    "v1.10",
    "v1.9",
    "1",
    "01",
    "v",
    "10",
    "9",
    "a1b",
    "a01b2",
    "a1b10",
    "99999999999999999999",
    "x-2",
    "",
    "é7",
)


def add_oddities(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    _add_names(out, labels, chance)
    _add_floats(out, labels, chance)
    _add_starts(out, labels, chance)
    _add_bad_classic(out, labels, chance)
    _add_histograms(out, labels, chance)
    _add_infos(out, labels)


def _add_names(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    """Names that must be quoted, and names that are keywords."""
    for name in ("http.requests", "sum", "a:b", "größe"):
        more = {"host.name": labels["instance"], "on": chance.choice(["x", 'a"b', "c\\d", "e\nf"])}
        put(out, labels | more, name, [(i, quarter(chance, 0, 9)) for i in scrapes(chance, 0.3)])
    number = (labels["job"] == "db") * 3 + int(labels["instance"][1])
    for i in (number, number + 6):
        value = _VERSIONS[i] if i < len(_VERSIONS) else f"v1.{i}"
        put(out, labels | {"version": value}, "versions", [(i, 1.0) for i in scrapes(chance, 0.3)])


def _add_floats(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    # All different at any time, so that an order among them is no matter of chance.
    put(out, labels, "distinct", [(i, chance.random() * 1000) for i in scrapes(chance)])
    # Sums of these overflow, their means do not.
    huge = [1.7e308, -1.7e308, 1e308, 5e307, -1e308]
    put(out, labels, "huge", [(i, chance.choice(huge)) for i in scrapes(chance)])
    # Sums of these lose digits unless compensated.
    put(out, labels, "cancelling", [(i, chance.choice([1e16, -1e16, 1.0, 3.0])) for i in scrapes(chance)])
    # Not on the grid of the scrapes, and with pauses around the look-back.
    times, at_ms = [], START_MS + chance.randrange(5_000)
    while at_ms < START_MS + SCRAPES * SCRAPE_MS:
        times.append(at_ms)
        at_ms += chance.choice([1_000, 7_501, 14_999, 15_001, 299_999, 300_000, 300_001])
    put(out, labels, "irregular", [(ms, quarter(chance, -5, 5)) for ms in times], at_ms=True)


def _add_starts(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    """Counters that say when they started: truly, never again after a reset, or before their own last sample."""
    value, start_ms = 0.0, START_MS - SCRAPE_MS
    points, starts = [], []
    for i in scrapes(chance, 0.1):
        time_ms = START_MS + i * SCRAPE_MS
        if chance.random() < 0.08:
            value, start_ms = 0.0, time_ms - chance.choice([1, 5_000, 14_999, 15_000, 20_000])
        value += quarter(chance, 0, 9)
        points.append((i, value))
        starts.append(start_ms)
    put(out, labels, "started_total", list(points), starts=starts)


def _add_bad_classic(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    """Classic histograms that are not cumulative, or lack +Inf, or have bounds that are none or written twice."""
    times = scrapes(chance, 0.3)
    for bound in ("-1", "0", "0.50", "0.5", "2", "+Inf"):
        points = [(i, float(chance.randint(0, 20))) for i in times]
        put(out, labels | {"le": bound}, "doubled_bucket", points)
        if bound != "0.50":
            put(out, labels | {"le": bound}, "uneven_bucket", points)
    for bound in ("0.1", "1", "10") + (("abc", "") if labels["instance"] == "i0" else ()):
        put(out, labels | {"le": bound}, "endless_bucket", [(i, float(chance.randint(0, 9))) for i in times])
    for bound in ("-Inf", "1e1", "INF"):
        put(out, labels | {"le": bound}, "strange_bucket", [(i, float(chance.randint(0, 9))) for i in times])
    put(out, labels | {"le": "1"}, "hybrid", [(i, float(chance.randint(0, 9))) for i in times])
    put(out, labels | {"le": "+Inf"}, "hybrid", [(i, 9.0) for i in times])
    put(out, labels, "hybrid", [(i, exponential(chance, 0)) for i in times])


def _add_histograms(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    blind = []
    for i in scrapes(chance, 0.5):
        histogram = full(chance)
        unseen = float(chance.choice([0, 0, 1, 5]))
        odd_sum = math.nan if unseen else chance.choice([math.inf, -math.inf, 1e308, 3.5])
        blind.append((i, _with(histogram, count=histogram.count + unseen, sum=odd_sum, hint=ResetHint.GAUGE)))
    put(out, labels, "blind", list(blind))
    empty = Histogram(schema=1, count=0.0, sum=0.0, zero_threshold=0.001)
    put(out, labels, "hollow", [(i, empty) for i in scrapes(chance, 0.5)])
    below = [(i, exponential(chance, 1, pos=False).with_hint(ResetHint.GAUGE)) for i in scrapes(chance, 0.5)]
    put(out, labels, "below", list(below))
    ranges = ((-5.0, -1.0), (-5.0, 0.0, 5.0), (1.0,), (0.0, 1.0), (0.25, 1.0, 4.0))
    gauges = [(i, custom(chance, chance.choice(ranges)).with_hint(ResetHint.GAUGE)) for i in scrapes(chance, 0.5)]
    put(out, labels, "occupancy", list(gauges))
    # What is told to be a reset is one, whatever the counts say.
    told, value = [], exponential(chance, 1)
    for i in scrapes(chance, 0.5):
        told.append((i, value.with_hint(chance.choice([ResetHint.UNKNOWN, ResetHint.UNKNOWN, ResetHint.RESET]))))
        value = _with(value, count=value.count + 2, zero_count=value.zero_count + 2)
    put(out, labels, "told", list(told))


def _add_infos(out: Series, labels: dict[str, str]) -> None:
    points: list[tuple[int, float | Histogram]] = [(i, 1.0) for i in range(SCRAPES)]
    put(out, labels | {"build": labels["instance"]}, "build_info", points)
    if labels["job"] == "db":
        for owner in ("x", "y"):
            put(out, labels | {"owner": owner}, "twice_info", points)
    put(out, labels | {"cluster": f"other{labels['job']}", "job2": "z"}, "rival_info", points)


def _with(histogram: Histogram, **changes: object) -> Histogram:
    return replace(histogram, **changes)  # type: ignore[arg-type]
