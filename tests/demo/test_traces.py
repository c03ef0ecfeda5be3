"""Traces: whole trees, children within their parents, failures where they belong."""

from collections import Counter, defaultdict

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lakerunner.demo.produce import counted_batches
from lakerunner.demo.shop import SERVICES
from lakerunner.model.time import NS_PER_S
from tests.demo.requests import SEED, START_NS, pairs_of, requests, spans

SECONDS = 600
ERROR = Status.STATUS_CODE_ERROR


@pytest.fixture(scope="module")
def made():
    return list(spans(requests("traces", SECONDS)))


@pytest.fixture(scope="module")
def by_id(made):
    return {span.span_id: (resource, span) for resource, span in made}


def test_counts_are_those_of_the_bytes():
    for batch in counted_batches("traces", SEED, START_NS, START_NS + 60 * NS_PER_S, 2_000.0):
        assert batch.records == sum(1 for _ in spans([batch.payload])) > 0


def test_span_ids_are_unique(made, by_id):
    assert len(by_id) == len(made)


def test_a_child_lies_within_its_parent_of_the_same_trace(made, by_id):
    children = 0
    for resource, span in made:
        if not span.parent_span_id:
            continue
        children += 1
        above, parent = by_id[span.parent_span_id]
        assert parent.trace_id == span.trace_id
        assert parent.start_time_unix_nano <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= parent.end_time_unix_nano
        if span.kind == Span.SPAN_KIND_SERVER:
            assert parent.kind == Span.SPAN_KIND_CLIENT
            assert above["service.name"] != resource["service.name"]
        else:
            assert above["k8s.pod.name"] == resource["k8s.pod.name"]
    assert children > 1_000


def test_no_attribute_is_given_twice(made):
    for _, span in made:
        for message in (span, *span.events, *span.links):
            assert len(pairs_of(message)) == len(message.attributes)


def test_every_trace_has_one_root(made):
    roots = Counter(span.trace_id for _, span in made if not span.parent_span_id)
    assert roots.keys() == {span.trace_id for _, span in made}
    assert set(roots.values()) == {1}


def test_spans_lie_in_the_range(made):
    for _, span in made:
        assert START_NS <= span.start_time_unix_nano < span.end_time_unix_nano < START_NS + SECONDS * NS_PER_S


def test_all_services_and_kinds_take_part(made):
    assert {resource["service.name"] for resource, _ in made} == {service.name for service in SERVICES}
    assert {span.kind for _, span in made} == {1, 2, 3, 4, 5}


def test_latencies_have_a_heavy_tail(made):
    roots = sorted(s.end_time_unix_nano - s.start_time_unix_nano for _, s in made if s.name == "GET /product/{id}")
    assert roots[-1] > 10 * roots[len(roots) // 2]


def test_an_error_has_its_reason_and_one_exception_where_it_began(made, by_id):
    failed = defaultdict(list)
    for _, span in made:
        if span.status.code == ERROR:
            assert span.status.message and "error.type" in pairs_of(span)
            failed[span.trace_id].append(span)
        for event in span.events:
            assert span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano
            if event.name == "exception":
                assert {"exception.type", "exception.message", "exception.stacktrace"} <= pairs_of(event).keys()
    assert failed
    thrown = Counter(s.trace_id for _, s in made for event in s.events if event.name == "exception")
    assert failed.keys() <= thrown.keys()
    assert set(thrown.values()) == {1}


def test_a_server_that_fails_answers_with_a_failing_status(made):
    seen = Counter()
    for _, span in made:
        pairs = pairs_of(span)
        if span.kind == Span.SPAN_KIND_SERVER and "http.response.status_code" in pairs:
            assert (pairs["http.response.status_code"] >= 500) == (span.status.code == ERROR)
            seen[pairs["http.response.status_code"]] += 1
    assert {200, 401, 404} <= seen.keys()


def test_consumers_link_to_the_sender_that_came_before(made, by_id):
    consumers = [span for _, span in made if span.kind == Span.SPAN_KIND_CONSUMER]
    assert consumers
    for span in consumers:
        (link,) = span.links
        sender = by_id[link.span_id][1]
        assert sender.kind == Span.SPAN_KIND_PRODUCER
        assert sender.trace_id == link.trace_id != span.trace_id
        assert sender.end_time_unix_nano <= span.start_time_unix_nano
