"""`/loki/api/v1/patterns`: the patterns of log lines, and how often each occurs.

Ingest stores a fingerprint of each line's pattern, by which lines are counted. The text of a pattern is made from any
line that has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.formats.fingerprints import fingerprints, pattern_text
from lakerunner.model.errors import BadInput
from lakerunner.model.signals.logs import FINGERPRINT, LOGS
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import RowPlan
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.records import DETECTED_LEVEL
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.loki.lines import newest_lines
from lakerunner.serve.loki.selectors import selector_of
from lakerunner.serve.loki.tallies import COUNT, Tallies
from lakerunner.serve.loki.times import Bounds, read_bounds, read_few_steps_ms
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question

#: Patterns of an answer, the most frequent first.
_MOST_PATTERNS = 300
#: Newest lines in which the texts of patterns are looked for, and the patterns that are looked up one by one after it.
_LINES, _LOOKED_UP = 5_000, 50
#: Patterns are counted over no shorter time.
_LEAST_STEP_MS = 10_000

#: Fingerprint and level -> times in seconds and numbers of lines.
Counts = dict[tuple[str, str], list[tuple[int, int]]]


def pattern_routes(api: Api) -> list[BaseRoute]:
    async def patterns(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        selector, bounds = selector_of(params.required("query")), read_bounds(params)
        step_ms = max(read_few_steps_ms(params, bounds, api.admission.limits(caller).max_steps), _LEAST_STEP_MS)

        before_ns = params.duration_ms("new_since", 0) * NS_PER_MS
        if before_ns < 0:
            raise BadInput('invalid parameter "new_since": it is negative')

        def answer(query: RunningQuery) -> Response:
            tallies = Tallies(api.service, query, selector)
            counts, warnings = _counts(tallies, bounds, step_ms)
            if before_ns and counts:
                # All of them, by fingerprint: a rare pattern is among no list of the most frequent.
                known, stats = tallies.of_range(
                    COUNT, (FINGERPRINT,), Bounds(bounds.start_ns - before_ns, bounds.start_ns - 1)
                )
                old = {tally.labels.get(FINGERPRINT, "") for tally in known}
                counts = {key: samples for key, samples in counts.items() if key[0] not in old}
                warnings += [warning for warning in stats.warnings() if warning not in warnings]
            totals = {key: sum(number for _, number in samples) for key, samples in counts.items()}
            frequent = sorted(totals, key=lambda key: (-totals[key], key))[:_MOST_PATTERNS]
            texts = _texts(api, query, selector, bounds, [fingerprint for fingerprint, _ in frequent])
            found = [
                {"pattern": texts[fingerprint], "level": level, "samples": counts[fingerprint, level]}
                for fingerprint, level in frequent
                if fingerprint in texts
            ]
            return success(request, json_text(found), warnings)

        return await api.in_turn(request, caller, "loki_patterns", params.text("query"), answer)

    return [loki_route("/loki/api/v1/patterns", patterns)]


def _counts(tallies: Tallies, bounds: Bounds, step_ms: int) -> tuple[Counts, list[str]]:
    step_ns = step_ms * NS_PER_MS
    first_ns = bounds.start_ns // step_ns * step_ns
    last_ns = -(-bounds.end_ns // step_ns) * step_ns
    steps = Bounds(first_ns + step_ns, max(last_ns, first_ns + step_ns))
    matrix, stats = tallies.by_step(COUNT, (FINGERPRINT, DETECTED_LEVEL), steps, step_ms)
    counts: Counts = defaultdict(list)
    for series in matrix:
        labels = dict(series.labels.pairs)
        # The time of a sample is the beginning of its step.
        times = ((series.timestamps_ms - step_ms) // 1000).tolist()
        numbers = series.values.round().astype(int).tolist()
        key = labels.get(FINGERPRINT, ""), labels.get(DETECTED_LEVEL, "")
        counts[key] += zip(times, numbers, strict=True)
    return {key: samples for key, samples in counts.items() if key[0]}, list(stats.warnings())


def _texts(
    api: Api, query: RunningQuery, selector: LogSelector, bounds: Bounds, wanted: Sequence[str]
) -> dict[str, str]:
    """The texts of patterns by fingerprint. Of rare ones among very many, some have none."""
    lines: dict[str, str] = {}
    if wanted:
        _add_lines(lines, newest_lines(api, query, selector, bounds, _LINES), "line")
    for fingerprint in [each for each in dict.fromkeys(wanted) if each not in lines][:_LOOKED_UP]:
        _add_lines(lines, _with_fingerprint(api, query, fingerprint, bounds), "message")
    return {fingerprint: pattern_text(lines[fingerprint]) for fingerprint in set(wanted) & lines.keys()}


def _with_fingerprint(api: Api, query: RunningQuery, fingerprint: str, bounds: Bounds) -> list[pa.RecordBatch]:
    """One line of the org that has the fingerprint, whatever its labels."""
    times = QueryTimes(bounds.start_ns // NS_PER_MS, bounds.end_ns // NS_PER_MS + 1, 0)
    text = f"{FINGERPRINT} = {int(fingerprint)}"
    question = Question("rows", text, times, signal=LOGS.name, limit=1, columns=("message",))
    plan = api.service.compile(question, query.caller)
    assert isinstance(plan, RowPlan)
    batches, _ = api.service.rows(plan, question, query)
    return list(batches)


def _add_lines(lines: dict[str, str], batches: Iterable[pa.RecordBatch], column: str) -> None:
    for batch in batches:
        texts = batch.column(column)
        codes = fingerprints(pa.chunked_array([texts])).combine_chunks().dictionary_encode()
        firsts = pa.array([codes.indices.index(code).as_py() for code in range(len(codes.dictionary))], pa.int64())
        lines |= dict(zip(map(str, codes.dictionary.to_pylist()), texts.take(firsts).to_pylist(), strict=True))
