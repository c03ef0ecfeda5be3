"""Calls on every edge equal a brute-force count, however the spans are split, ordered, repeated and raced."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from lakerunner.index.call_halves import forget_halves
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.model.signals import METRICS, TRACES
from lakerunner.pipeline.derive.edges import calls_of
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.metrics import GRAPH_HALVES
from lakerunner.runtime.settings import DeriveSettings
from tests.formats.otlp_samples import pairs
from tests.pipeline.lake import ORG, Lake, loaded

SERVER = "traces_service_graph_request_server_seconds"
SERVICES = ("gateway", "cart", "payments", "stock")
Spans = list[tuple[str, Span]]


def spans_of(rng: random.Random, traces: int, start_ns: int) -> Spans:
    found: Spans = []
    for _ in range(traces):
        trace_id, parent, service = rng.randbytes(16), b"", "gateway"
        for _ in range(rng.randint(1, 4)):
            client, server, callee = rng.randbytes(8), rng.randbytes(8), rng.choice(SERVICES)
            at = start_ns + rng.randrange(50_000_000_000)
            messaging = rng.random() < 0.2
            kinds = (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER) if messaging else (3, 2)
            sides = (
                (service, Span(span_id=client, parent_span_id=parent, kind=kinds[0], name="call")),
                (callee, Span(span_id=server, parent_span_id=client, kind=kinds[1], name="serve")),
            )
            lost = rng.random()
            for number, (own, span) in enumerate(sides):
                if lost < 0.2 and number == (lost < 0.1):
                    continue
                span.trace_id, span.start_time_unix_nano = trace_id, at
                span.end_time_unix_nano = at + rng.randrange(1, 10**9)
                if rng.random() < 0.2:
                    span.status.code = Status.STATUS_CODE_ERROR
                found.append((own, span))
            if messaging:
                # A message has further consumers, which come with whichever object.
                for _ in range(rng.randint(0, 2)):
                    consumer = Span(
                        trace_id=trace_id, span_id=rng.randbytes(8), parent_span_id=client, kind=5, name="serve"
                    )
                    consumer.start_time_unix_nano, consumer.end_time_unix_nano = at, at + 9_000
                    found.append((rng.choice(SERVICES), consumer))
            if rng.random() < 0.3:
                query = Span(trace_id=trace_id, span_id=rng.randbytes(8), parent_span_id=server, kind=3, name="select")
                query.start_time_unix_nano, query.end_time_unix_nano = at, at + 5_000
                query.attributes.extend(pairs({"db.system": "mysql"}))
                found.append((callee, query))
            parent, service = server, callee
    return found


def brute_force(spans: Spans) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Calls and failed calls per edge."""
    clients = {(s.trace_id, s.span_id): (service, s) for service, s in spans if s.kind in (3, 4)}
    calls: Counter[tuple[str, str]] = Counter()
    failed: Counter[tuple[str, str]] = Counter()
    for service, span in spans:
        if span.kind in (2, 5) and (span.trace_id, span.parent_span_id) in clients:
            caller, client = clients[span.trace_id, span.parent_span_id]
            calls[caller, service] += 1
            failed[caller, service] += 2 in (span.status.code, client.status.code)
        elif span.name == "select":
            calls[service, "mysql"] += 1
    return calls, +failed


def batch_of(spans: Sequence[tuple[str, Span]]) -> bytes:
    batch = TracesData()
    for service, span in spans:
        parent = batch.resource_spans.add()
        parent.resource.attributes.extend(pairs({"service.name": service}))
        parent.scope_spans.add().spans.append(span)
    return batch.SerializeToString()


def counted(lake: Lake, metric: str) -> Counter[tuple[str, str]]:
    """The sum of all samples per edge, as they are stored."""
    samples, series = lake.rows(METRICS), lake.rows(METRICS, 1)
    labels = {row["tid"]: dict(row["labels"]) for row in series.to_pylist()}
    found: Counter[tuple[str, str]] = Counter()
    for row in samples.filter(pc.equal(samples.column("metric_name"), metric)).to_pylist():
        edge = labels[row["tid"]]
        found[edge["client"], edge["server"]] += int(row["value"] if row["h_count"] is None else row["h_count"])
    return found


def here(tasks):
    return [run_task(task) for task in tasks]


def commit(lake: Lake, found: object) -> Outcome:
    assert isinstance(found, ItemResult), found
    return commit_item(lake.database, found)


@pytest.mark.parametrize("seed", [1])
def test_calls_equal_a_brute_force_count(lake: Lake, seed: int) -> None:
    rng = random.Random(seed)
    now_ns = time.time_ns() // 10**10 * 10**10
    spans = spans_of(rng, 60, now_ns - 600 * 10**9)
    rng.shuffle(spans)
    cuts = sorted(rng.sample(range(len(spans)), 9))
    parts = [spans[a:b] for a, b in zip([0, *cuts], [*cuts, len(spans)], strict=True) if b > a]
    raws = [lake.put(TRACES, batch_of(part)) for part in parts]
    derive = DeriveSettings(span_metrics=True, service_graph=True)
    runner = IngestRunner(lake.settings.model_copy(update={"derive": derive}), lake.database, here)
    waiting = [loaded(lake, *raws[at : at + 2]) for at in range(0, len(raws), 2)]
    repeated = 0
    while waiting:
        # Two workers have done their work before either commits; one of them was told of its item twice.
        at_once, waiting = waiting[:2], waiting[2:]
        attempts = list(runner.run([*at_once, at_once[0]], {item.item_id: 1 for item in at_once}))
        for item, attempt in zip([*at_once, at_once[0]], attempts, strict=True):
            try:
                outcome = commit(lake, attempt.result)
            except Unavailable:
                repeated += 1
                waiting.append(item)
                continue
            except LakeError as error:
                raise AssertionError(str(error)) from error
            assert outcome in (Outcome.COMMITTED, Outcome.ALREADY)
    calls, failed = brute_force(spans)
    assert counted(lake, "traces_service_graph_request_total") == calls
    assert counted(lake, "traces_service_graph_request_failed_total") == failed
    assert counted(lake, "traces_service_graph_request_server_seconds") == calls
    assert repeated, "no race was seen, so the test shows nothing about them"
    alone = lake.value("SELECT count(*) FROM service_graph_half WHERE NOT is_client")
    paired = sum(1 for _, span in spans if span.kind in (2, 5)) - alone
    assert paired == sum(count for (_, server), count in calls.items() if server != "mysql")

    opened = open_lake(lake.settings, lake.database)
    try:
        end_ms = now_ns // 10**6
        for query, expected in (
            ("sum(sum_over_time(traces_spanmetrics_calls_total[1h]))", len(spans)),
            (f"count(histogram_quantile(0.5, sum by (client, server) (sum_over_time({SERVER}[1h]))) > 0)", len(calls)),
            ("sum(increase(traces_spanmetrics_calls_total[1h]))", len(spans)),
        ):
            plan = language("promql").compile(query, QueryTimes(end_ms, end_ms, 0), QueryOptions())
            value = run(plan, opened.query(ORG), lambda: None).value
            assert float(value.values[0]) == pytest.approx(expected, rel=0.15 if "increase" in query else 1e-9)
    finally:
        opened.close()


def _call(span_id: bytes, kind: int, parent: bytes = b"", **attributes: str) -> Span:
    at = time.time_ns() - 60 * 10**9
    span = Span(trace_id=b"t" * 16, span_id=span_id, parent_span_id=parent, kind=kind, name="call")
    span.start_time_unix_nano, span.end_time_unix_nano = at, at + 10**6
    span.attributes.extend(pairs({name.replace("_", "."): value for name, value in attributes.items()}))
    return span


def _ingested(lake: Lake, spans: Spans, **derive: object) -> None:
    """Ingest one object. Every item looks for external calls in an eighth of the halves that wait."""
    settings = DeriveSettings(span_metrics=True, service_graph=True, peer_wait_s=1e-6, **derive)
    runner = IngestRunner(lake.settings.model_copy(update={"derive": settings}), lake.database, here)
    item = loaded(lake, lake.put(TRACES, batch_of(spans)))
    [done] = runner.run([item], {item.item_id: 1})
    assert commit(lake, done.result) is Outcome.COMMITTED
    done.on_commit()


def test_calls_to_services_without_spans(lake: Lake) -> None:
    own = "traces_service_graph_request_total"
    before = GRAPH_HALVES.labels("external")._value.get()
    _ingested(
        lake,
        [
            ("cart", _call(b"named---", 3, peer_service="bank", server_address="10.0.0.1")),
            ("cart", _call(b"address-", 3, server_address="api.example.com")),
            ("cart", _call(b"nameless", 3)),
            ("cart", _call(b"answered", 3, peer_service="stock-alias")),
            ("cart", _call(b"database", 3, peer_service="db-alias", db_system="mysql")),
        ],
    )
    assert counted(lake, own) == {("cart", "mysql"): 1}
    # The server of one of them comes before the client is given up; items after it count the others.
    _ingested(lake, [("stock", _call(b"server--", 2, b"answered"))])
    for number in range(16):
        _ingested(lake, [("other", _call(b"other-%02d" % number, 1))])
        if not lake.value("SELECT count(*) FROM service_graph_half WHERE peer <> ''"):
            break
    expected = {("cart", "mysql"): 1, ("cart", "bank"): 1, ("cart", "api.example.com"): 1, ("cart", "stock"): 1}
    assert counted(lake, own) == expected
    types = {dict(row["labels"]).get("connection_type") for row in lake.rows(METRICS, 1).to_pylist()}
    assert {"virtual_node", "database"} <= types
    assert lake.value("SELECT count(*) FROM service_graph_half WHERE peer <> ''") == 0
    assert GRAPH_HALVES.labels("external")._value.get() == before + 2


def test_time_settles_calls_to_services_without_spans(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _ingested(lake, [("cart", _call(b"quiet---", 3, peer_service="bank"))], peer_attributes="peer.service")
    settings = DeriveSettings(service_graph=True, peer_wait_s=1e-6)
    made = lake.settings.model_copy(update={"derive": settings})
    runner, *others = (IngestRunner(made, lake.database, here) for _ in range(3))
    before = GRAPH_HALVES.labels("external")._value.get()
    waiting = lake.value("SELECT count(*) FROM service_graph_half WHERE peer <> ''")

    def fail(*_: object) -> None:
        raise Unavailable("cannot commit")

    with monkeypatch.context() as patched:
        # What was written before a crash is seen by nobody, and written again.
        patched.setattr("lakerunner.pipeline.ingest.complete.commit_item", fail)
        runner.upkeep()
    runner.upkeep()  # Not yet due again.
    assert counted(lake, "traces_service_graph_request_total") == {}
    for other in others:
        other.upkeep()
        assert counted(lake, "traces_service_graph_request_total") == {("cart", "bank"): 1}
    assert waiting == 1 and lake.value("SELECT count(*) FROM service_graph_half WHERE peer <> ''") == 0
    assert GRAPH_HALVES.labels("external")._value.get() == before + 1


def test_external_calls_can_be_left_out(lake: Lake) -> None:
    for number in range(9):
        span = _call(b"client-%d" % number, 3, peer_service="bank")
        _ingested(lake, [("cart", span)], peer_attributes="")
    assert counted(lake, "traces_service_graph_request_total") == {}


def test_sides_that_came_too_late_are_counted(lake: Lake) -> None:
    spans = [
        ("cart", _call(b"client--", 3)),
        ("stock", _call(b"server--", 2, b"missing-")),
        ("q", _call(b"message-", 4)),
    ]
    _ingested(lake, spans)
    sides = [GRAPH_HALVES.labels(f"unpaired_{side}") for side in ("client", "server")]
    before = [side._value.get() for side in sides]
    with lake.database.transaction() as tx:
        assert forget_halves(tx, 0.0, 100) == 3
    assert [side._value.get() for side in sides] == [value + 1 for value in before]


def test_objects_that_are_read_one_by_one_are_derived_from_too(lake: Lake) -> None:
    def dies_with_several(tasks):
        if any(len(task.objects) > 1 for task in tasks):
            raise Unavailable("the executor died")
        return here(tasks)

    settings = lake.settings.model_copy(update={"derive": DeriveSettings(span_metrics=True, service_graph=True)})
    runner = IngestRunner(settings, lake.database, dies_with_several)
    raws = [
        lake.put(TRACES, batch_of([("cart", _call(b"client--", 3))])),
        lake.put(TRACES, batch_of([("stock", _call(b"server--", 2, b"client--"))])),
    ]
    item = loaded(lake, *raws)
    [done] = runner.run([item], {item.item_id: settings.bus.max_attempts})
    assert commit(lake, done.result) is Outcome.COMMITTED
    assert counted(lake, "traces_service_graph_request_total") == {("cart", "stock"): 1}
    samples = lake.rows(METRICS)
    calls = samples.filter(pc.equal(samples.column("metric_name"), "traces_spanmetrics_calls_total"))
    assert sum(calls.column("value").to_pylist()) == 2


def test_no_halves_are_left_of_spans_without_ids() -> None:
    columns = {
        "kind": ["client", "server", None],
        "span_id": [None, "b", "c"],
        "parent_span_id": [None, None, None],
        "trace_id": ["t", "t", "t"],
        "service_name": [None, None, None],
        "status_code": [None, None, None],
    }
    table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    table = table.append_column("start_timestamp", pa.array([1, 2, 3]).cast(pa.timestamp("ns", "UTC")))
    table = table.append_column("duration_ns", pa.array([1, -2, 3]))
    edges, halves = calls_of(table)
    assert edges.num_rows == 0 and halves.num_rows == 0
