"""Random requests to a running query API, made from the document that it serves, and answers held against it.

`make apifuzz CALLS=20000` starts an API and a worker over a small lake and sends that many. Texts of queries come from
the grammar of the differential tests, so that most of them are evaluated and not only refused.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lakerunner.query.traceql.printer import print_query
from tests.components.postgres import PostgresServer
from tests.differential.logql.grammar import Grammar as LogGrammar
from tests.differential.logql.records import END_NS, START_NS, make_requests
from tests.differential.promql.dataset import make_dataset, memory_source
from tests.differential.promql.grammar import Grammar
from tests.differential.promql.samples import END_MS, START_MS
from tests.query.ingesting import ingest
from tests.query.lake_of_series import lake_of_series
from tests.query.traceql.trees import QUERIES
from tests.serve.roles import Roles, keyed_org, running_roles
from tests.serve.strange_traces import STRANGE, ingest_spans, strange_spans

#: A call that takes longer than this hangs.
TIMEOUT_S = 20.0
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
#: Of each operation's calls, so many are made to break the document.
_NEGATIVE_SHARE = 0.25
_PROGRESS_S = 10.0
_KEYS = ("authorization", "x-api-key")
_TEMPO = ("/api/search", "/api/v2/search", "/api/traces", "/api/v2/traces", "/api/metrics")


@dataclass
class Tally:
    """What came of the calls."""

    calls: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    #: Calls whose own `timeout` was shorter than they took.
    timed_out_as_asked: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.statuses.items() if status >= 500)

    def __str__(self) -> str:
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        return (
            f"{self.calls:,} calls; {statuses}; {self.server_errors} server errors, {len(self.failures)} failures; "
            f"slowest {self.slowest_s:.2f} s ({self.slowest[:200]})"
        )


def register_formats() -> None:
    """How texts of the language are made: mostly well typed over the lake's metrics, else any text."""
    chances = st.integers(0, 2**32).map(random.Random)
    written = chances.map(lambda chance: Grammar(chance).expression())
    selectors = chances.map(lambda chance: Grammar(chance).selector())
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
    schemathesis.openapi.format("promql", st.one_of(written, written, written, text))
    log_queries = chances.map(_log_query)
    log_selectors = st.sampled_from(['{service_name="api"}', '{service_name=~"api|db", host_name!="x"}', "{}"])
    schemathesis.openapi.format("logql", st.one_of(log_queries, log_queries, log_queries, text))
    schemathesis.openapi.format("logql-selector", st.one_of(log_selectors, log_selectors, text))
    schemathesis.openapi.format("traceql", st.one_of(_TRACEQL, _TRACEQL, QUERIES.map(print_query), text))
    schemathesis.openapi.format("promql-selector", st.one_of(selectors, selectors, text))


_FILTERS = st.sampled_from(
    [
        *("{ }", "{ span.place > 0 }", '{ resource.service.name =~ "strange.*" }', "{ duration < 0 || kind = server }"),
        *("{ span:childCount > 0 }", '{ event.why != "circle" }', "{ .strange != nil && nestedSetLeft > 0 }"),
    ]
)
_JOINED = st.builds(
    "{} {} {}".format, _FILTERS, st.sampled_from(["&&", "||", ">", ">>", "<<", "~", "!>>", "&<<"]), _FILTERS
)
_ENDS = st.sampled_from(
    [
        *(
            "",
            "| count() > 1",
            "| by(span.strange) | avg(duration) > 0",
            "| select(span.place, event:name) | coalesce()",
        ),
        *("| rate() by (span.strange)", "| quantile_over_time(duration, .5, .9)", "| compare({ status = error })"),
        *("| sum_over_time(span.share) by (name) | topk(2)", "| histogram_over_time(duration) with (exemplars=true)"),
    ]
)
_TRACEQL = st.builds("{} {}".format, st.one_of(_FILTERS, _JOINED), _ENDS)
_IDS = (*(trace_id for trace_id, _, _ in STRANGE.values()), "00", "ffff", "not-an-id")
_TAGS = ("span.strange", ".place", "resource.service.name", "name", "event:name", "rootName", "span.%2Flist", "x y")


def _log_query(chance: random.Random) -> str:
    grammar = LogGrammar(chance)
    return grammar.log_query() if chance.random() < 0.5 else grammar.metric_query(2)


def _times_of_data(chance: random.Random, is_loki: bool) -> dict[str, float]:
    if is_loki:
        first = chance.randrange(START_NS, END_NS)
        return {"start": first, "end": first + chance.randrange(900 * 10**9), "time": first, "step": 60}
    start = chance.uniform(START_MS, END_MS) / 1000
    return {"start": start, "end": start + chance.uniform(0, 900), "time": start, "step": chance.choice([1, 15, 60])}


def fuzz(url: str, secret: str, calls: int, first_seed: int = 0, under: Sequence[str] = ("/",)) -> Tally:
    """Send about so many calls, shared by the operations of the document whose paths begin so."""
    register_formats()
    schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json")
    # A tail has no end.
    operations = [one for found in schema.get_all_operations() if not (one := found.ok()).path.endswith("/logs/tail")]
    operations = [one for one in operations if one.path.startswith(tuple(under))]
    # Those with parameters have more to try than those without.
    weights = [1 + 8 * bool(list(operation.query) or operation.body) for operation in operations]
    tally, told_at = Tally(), time.monotonic()
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {secret}"
    for operation, weight in zip(operations, weights, strict=True):
        share = max(2, round(calls * weight / sum(weights)))
        negative = round(share * _NEGATIVE_SHARE) if weight > 1 else 0
        for mode, number in ((GenerationMode.POSITIVE, share - negative), (GenerationMode.NEGATIVE, negative)):
            if number:
                _send(operation, mode, number, session, tally, first_seed)
        if time.monotonic() - told_at > _PROGRESS_S:
            told_at = time.monotonic()
            sys.stderr.write(f"{operation.label}: {tally}\n")
    return tally


def _send(operation: Any, mode: GenerationMode, number: int, session: Any, tally: Tally, first_seed: int) -> None:
    @seed(first_seed)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode), st.integers(0, 2**32))
    def one(case: Any, draw: int) -> None:
        if mode is GenerationMode.POSITIVE and draw % 4:
            _move_to_data(case, random.Random(draw))
        _call(case, session, tally)

    one()


def _move_to_data(case: Any, chance: random.Random) -> None:
    """Times, ids and tags of the lake's data in place of any, where the request has them."""
    is_tempo = case.path.startswith(_TEMPO)
    for name, known in (("id", _IDS), ("tag", _TAGS)):
        if is_tempo and name in (case.path_parameters or {}):
            case.path_parameters[name] = chance.choice(known)
    for held in (case.query, case.body):
        if isinstance(held, dict):
            times = _times_of_data(chance, "/loki/" in case.path or is_tempo)
            held.update({name: value for name, value in times.items() if name in held})
            if case.path.startswith("/api/metrics") and not _is_metrics(str(held.get("q", "rate("))):
                held["q"] = f"{_filter(held['q'])} | rate()"
            if "q" in held and not is_tempo and ("/logs/" in case.path or "/spans/" in case.path):
                held.update({"s": START_NS // 10**6 + chance.randrange(600_000), "e": END_NS // 10**6, "step": "30s"})
            elif "q" in held and not is_tempo:
                held.update({"s": START_MS + chance.randrange(600_000), "e": END_MS, "step": "30s"})


def _is_metrics(query: str) -> bool:
    return any(name in query for name in ("rate(", "_over_time(", "compare("))


def _filter(query: str) -> str:
    """The part before any pipeline."""
    return query.split("|")[0] if query.startswith("{") and "||" not in query else "{ }"


def _call(case: Any, session: Any, tally: Tally) -> None:
    began = time.monotonic()
    tally.calls += 1
    told = f"{case.method} {case.formatted_path} {case.query or ''} {case.body if isinstance(case.body, dict) else ''}"
    try:
        # Keys that were made up are for a few calls to try, not for most of them.
        if tally.calls % 20:
            case.headers = {name: text for name, text in (case.headers or {}).items() if name.lower() not in _KEYS}
        response = case.call(session=session, timeout=TIMEOUT_S)
    except requests.RequestException as reason:
        tally.failures.append(f"{told}: {reason!r}")
        return
    took_s = time.monotonic() - began
    if took_s > tally.slowest_s:
        tally.slowest_s, tally.slowest = took_s, told
    # Prometheus says 503, Loki 504.
    if response.status_code in (503, 504) and "longer than" in response.text and "timeout" in told:
        tally.timed_out_as_asked += 1
        return
    tally.statuses[response.status_code] += 1
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as group:
        tally.failures += [f"{told}: {response.status_code} {one} {response.text[:300]}" for one in group.exceptions]
    except Failure as failure:
        tally.failures.append(f"{told}: {response.status_code} {failure}")


@contextmanager
def served_lake(folder: Path, database_url: str, **settings: object) -> Iterator[tuple[Roles, str]]:
    """A running API over the data of the differential tests, and a key to it."""
    with lake_of_series(folder, database_url) as lake:
        org_id = lake.write(memory_source(make_dataset(1)))
        ingest(lake, org_id, make_requests(1))
        ingest_spans(lake, org_id, strange_spans(START_NS + 60 * 10**9))
        org = keyed_org(lake.database, "fuzzed", org_id)
    with running_roles(folder, database_url, **settings) as roles:
        yield roles, org.secret


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--under", nargs="+", default=["/"], help="only paths that begin so, as /api/search /api/traces"
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = PostgresServer(folder / "pg")
        server.start()
        stack.callback(server.stop)
        data = folder / "data"
        data.mkdir()
        roles, secret = stack.enter_context(served_lake(data, server.new_database(), api_threads=4))
        tally = fuzz(roles.url, secret, options.calls, options.seed, options.under)
        api, worker = roles.rss_bytes()
    for failure in tally.failures[:50]:
        sys.stdout.write(f"{failure}\n\n")
    sys.stdout.write(f"{tally}\nmemory: API {api >> 20} MB, worker {worker >> 20} MB\n")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
