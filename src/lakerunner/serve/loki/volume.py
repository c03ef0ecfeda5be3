"""`/loki/api/v1/index/stats`, `/index/volume` and `/index/volume_range`: how much there is of what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.records import STREAM_LABELS
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.loki.selectors import EVERYTHING, selector_of
from lakerunner.serve.loki.tallies import BYTES, COUNT, Tallies, Tally
from lakerunner.serve.loki.times import (
    Bounds,
    read_bounds,
    read_few_steps_ms,
    read_interval_ns,
    read_limit,
    read_newest_first,
    time_ns,
)
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text

_NAMES = tuple(sorted(STREAM_LABELS))
_SERIES, _LABELS = "series", "labels"
_DEFAULT_LIMIT = 100
#: A set of labels that can be a key.
Group = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class VolumeRequest:
    selector: LogSelector
    bounds: Bounds
    #: Labels to group by.
    names: tuple[str, ...]
    #: Whether the bytes of each label's name are wanted, whatever its value.
    by_name: bool
    limit: int

    @classmethod
    def of(cls, params: Params, most: int) -> VolumeRequest:
        selector, bounds = selector_of(params.required("query"), braces=True), read_bounds(params)
        aggregate_by = params.text("aggregateBy") or _SERIES
        if aggregate_by not in (_SERIES, _LABELS):
            raise BadInput("invalid aggregation option", where="aggregateBy", hint="give series or labels")
        text = params.text("targetLabels")
        targets = tuple(text.split(",")) if text else ()
        matched = tuple(dict.fromkeys(matcher.name for matcher in selector.matchers))
        # Only streams that have all target labels count, except those of which the query says something itself.
        wanted = tuple(Matcher(name, MatchKind.REGEX, ".+") for name in targets if name not in matched)
        by_name = aggregate_by == _LABELS
        names = targets or (_NAMES if by_name or selector is EVERYTHING else matched)
        if not all(name in STREAM_LABELS or name in matched for name in targets):
            # No stream has these labels.
            bounds = Bounds(bounds.end_ns, bounds.end_ns)
        limit = _DEFAULT_LIMIT if params.text("limit") == "0" else read_limit(params, _DEFAULT_LIMIT)
        if limit > most:
            raise BadInput(f"cannot show {limit:,} volumes: more than {most:,} (api.max_series)", hint="ask for fewer")
        read_newest_first(params)
        return cls(LogSelector((*selector.matchers, *wanted)), bounds, names, by_name, limit)

    def groups(self, tally: Tally) -> list[Group]:
        if self.by_name:
            return [((name, ""),) for name in tally.labels]
        return [tuple(sorted(tally.labels.items()))]


def volume_routes(api: Api) -> list[BaseRoute]:
    async def stats(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        selector, bounds = selector_of(params.required("query")), read_bounds(params)
        # As in Loki, what would be wrong for a range query is wrong here too.
        read_few_steps_ms(params, bounds, api.admission.limits(caller).max_steps)
        read_interval_ns(params)
        read_limit(params)
        read_newest_first(params)

        def answer(query: RunningQuery) -> Response:
            tallies = Tallies(api.service, query, selector)
            streams, read = tallies.of_range(COUNT, _NAMES, bounds)
            sizes, _ = tallies.of_range(BYTES, (), bounds)
            figures = {
                "streams": len(streams),
                "chunks": read.segments_planned,
                "bytes": round(sum(tally.number for tally in sizes)),
                "entries": round(sum(tally.number for tally in streams)),
            }
            return document(request, json_text(figures))

        return await api.in_turn(request, caller, "loki_stats", params.text("query"), answer)

    async def volume(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        wanted = VolumeRequest.of(params, api.admission.limits(caller).max_series)
        time_ns(params, "time", 0)

        def answer(query: RunningQuery) -> Response:
            volumes, warnings = _volumes(api, query, wanted, wanted.bounds)
            time = wanted.bounds.end_ns / NS_PER_S
            result = [
                {"metric": dict(group), "value": [time, str(round(size))]}
                for group, size in _largest(volumes, wanted.limit)
            ]
            return success(request, json_text({"resultType": "vector", "result": result}), warnings)

        return await api.in_turn(request, caller, "loki_volume", params.text("query"), answer)

    async def volume_range(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        limits = api.admission.limits(caller)
        wanted = VolumeRequest.of(params, limits.max_series)
        step_ms = read_few_steps_ms(params, wanted.bounds, limits.max_steps)
        read_interval_ns(params)

        def answer(query: RunningQuery) -> Response:
            points, warnings = _volumes_by_step(api, query, wanted, step_ms)
            totals = {group: sum(size for _, size in values) for group, values in points.items()}
            shown = {group: points[group] for group, _ in _largest(totals, wanted.limit)}
            return success(request, json_text(_by_time(shown)), warnings)

        return await api.in_turn(request, caller, "loki_volume_range", params.text("query"), answer)

    return [
        loki_route("/loki/api/v1/index/stats", stats),
        loki_route("/loki/api/v1/index/volume", volume),
        loki_route("/loki/api/v1/index/volume_range", volume_range),
    ]


def _by_time(points: Mapping[Group, list[tuple[float, float]]]) -> dict[str, object]:
    """The volumes of groups over time. As Loki has it, one time for each group, or no group, is a vector."""
    samples = {group: [[time, str(round(size))] for time, size in sorted(points[group])] for group in points}
    if all(len(values) == 1 for values in samples.values()):
        alone = [{"metric": dict(group), "value": values[0]} for group, values in samples.items()]
        return {"resultType": "vector", "result": alone}
    return {
        "resultType": "matrix",
        "result": [{"metric": dict(group), "values": values} for group, values in samples.items()],
    }


def _volumes(
    api: Api, query: RunningQuery, wanted: VolumeRequest, bounds: Bounds
) -> tuple[Mapping[Group, float], list[str]]:
    volumes: Counter[Group] = Counter()
    if not wanted.bounds.range_ns:
        # A range ends before its end: one without a length has nothing.
        return volumes, []
    tallies, stats = Tallies(api.service, query, wanted.selector).of_range(BYTES, wanted.names, bounds)
    for tally in tallies:
        for group in wanted.groups(tally):
            volumes[group] += tally.number  # type: ignore[assignment]
    return volumes, list(stats.warnings())


def _volumes_by_step(
    api: Api, query: RunningQuery, wanted: VolumeRequest, step_ms: int
) -> tuple[Mapping[Group, list[tuple[float, float]]], list[str]]:
    """Bytes by time. Steps begin at multiples of the step, as Loki cuts them; the first and the last may be shorter."""
    points: dict[Group, list[tuple[float, float]]] = defaultdict(list)
    step_ns, bounds = step_ms * NS_PER_MS, wanted.bounds
    first_ns, last_ns = -(-bounds.start_ns // step_ns) * step_ns, bounds.end_ns // step_ns * step_ns
    tallies, warnings = Tallies(api.service, query, wanted.selector), []
    if first_ns < last_ns:
        # A step ends a nanosecond before the next one begins, which is in the same millisecond as Loki's times.
        steps = Bounds(first_ns + step_ns - 1, last_ns - 1)
        matrix, stats = tallies.by_step(BYTES, wanted.names, steps, step_ms)
        warnings = list(stats.warnings())
        for series in matrix:
            tally = Tally(dict(series.labels.pairs), 0.0)
            for group in wanted.groups(tally):
                times = [time_ms / 1000 for time_ms in series.timestamps_ms.tolist()]
                points[group] = _added(points[group], zip(times, series.values.tolist(), strict=True))
    for part, time in _ends(bounds, first_ns, last_ns):
        for group, size in _volumes(api, query, wanted, part)[0].items():
            points[group] = _added(points[group], [(time, size)])
    return points, warnings


def _ends(bounds: Bounds, first_ns: int, last_ns: int) -> Iterator[tuple[Bounds, float]]:
    """The parts of the range before the first and after the last whole step, and their times in seconds."""
    if first_ns > last_ns:
        yield bounds, bounds.end_ns / NS_PER_S
        return
    if bounds.start_ns < first_ns:
        yield Bounds(bounds.start_ns, first_ns - 1), (first_ns // NS_PER_MS - 1) / 1000
    if last_ns < bounds.end_ns:
        # Of whole milliseconds, so that it begins exactly where the step before it ends.
        length_ms = -(-(bounds.end_ns + 1 - last_ns) // NS_PER_MS)
        yield Bounds(last_ns, last_ns + length_ms * NS_PER_MS - 1), bounds.end_ns / NS_PER_S


def _added(
    points: Sequence[tuple[float, float]], more: Iterator[tuple[float, float]] | Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    sums: Counter[float] = Counter(dict(points))
    for time, size in more:
        sums[time] += size  # type: ignore[assignment]
    return list(sums.items())


def _largest(volumes: Mapping[Group, float], limit: int) -> list[tuple[Group, float]]:
    return sorted(volumes.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]
