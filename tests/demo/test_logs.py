"""The shop's logs are valid OTLP, varied, at the requested rate, and refer to existing traces."""

import json
from collections import Counter

import pytest

from lakerunner.demo.log_lines import Severity
from lakerunner.demo.produce import counted_batches
from lakerunner.demo.shop import SERVICES, Shop
from lakerunner.model.time import NS_PER_S
from tests.demo.requests import RATE, SEED, START_NS, logs, next_deploy_ns, pairs_of, requests, spans

SECONDS = 600


@pytest.fixture(scope="module")
def records():
    return list(logs(requests("logs", SECONDS)))


def test_counts_are_those_of_the_bytes():
    for batch in counted_batches("logs", SEED, START_NS, START_NS + 120 * NS_PER_S, 2_000.0):
        assert batch.records == sum(1 for _ in logs([batch.payload])) > 0


def test_the_rate_is_that_of_the_hour(records):
    expected = SECONDS * RATE * Shop(SEED, RATE).busyness(START_NS)
    assert len(records) == pytest.approx(expected, rel=0.15)


def test_every_service_writes_from_every_pod(records):
    pods = {(resource["service.name"], resource["k8s.pod.name"]) for resource, _ in records}
    assert Counter(service for service, _ in pods).keys() == {service.name for service in SERVICES}
    assert len(pods) >= Shop(SEED, RATE).pods * len(SERVICES)


def test_records_lie_in_the_range_and_are_observed_after(records):
    for _, record in records:
        assert START_NS <= record.time_unix_nano < START_NS + SECONDS * NS_PER_S
        assert record.time_unix_nano <= record.observed_time_unix_nano


def test_nothing_of_a_prototype_is_left(records):
    for _, record in records:
        assert "~" not in record.body.string_value
        assert not any("~" in str(value) for value in pairs_of(record).values())
        assert len(pairs_of(record)) == len(record.attributes)


def test_severities_agree_with_their_numbers(records):
    seen = Counter()
    for _, record in records:
        assert Severity[record.severity_text] == record.severity_number
        seen[record.severity_text] += 1
    assert seen.keys() >= {"DEBUG", "INFO", "WARN", "ERROR"}
    assert seen.most_common(1)[0][0] == "INFO"


def test_some_bodies_are_json_and_some_structured(records):
    charges = [json.loads(record.body.string_value) for _, record in records if record.body.string_value[:1] == "{"]
    assert charges and all(charge["amount"] >= 100 and len(charge["trace_id"]) == 32 for charge in charges)
    structured = [record.body.kvlist_value for _, record in records if record.body.HasField("kvlist_value")]
    assert structured and all(len(body.values) == 4 for body in structured)


def test_every_trace_and_span_named_in_logs_exists_in_the_same_pod(records):
    made = {
        (span.trace_id, span.span_id): (resource["k8s.pod.name"], span)
        for resource, span in spans(requests("traces", SECONDS))
    }
    traced = [(resource, record) for resource, record in records if record.trace_id]
    assert 0.8 < len(traced) / len(records) < 0.99
    for resource, record in traced:
        pod, span = made[record.trace_id, record.span_id]
        assert pod == resource["k8s.pod.name"]
        assert span.start_time_unix_nano <= record.time_unix_nano <= span.end_time_unix_nano


def test_exceptions_come_with_a_stacktrace(records):
    thrown = [pairs for _, record in records if "exception.type" in (pairs := pairs_of(record))]
    assert thrown and all(pairs["exception.stacktrace"].startswith(pairs["exception.type"]) for pairs in thrown)


def test_a_deploy_brings_a_new_version_a_word_of_it_and_errors():
    deploy_ns = next_deploy_ns("catalogue")
    before = list(logs(requests("logs", 240, deploy_ns - 240 * NS_PER_S)))
    after = list(logs(requests("logs", 240, deploy_ns)))

    def errors(records):
        ours = [record for resource, record in records if resource["service.name"] == "catalogue"]
        return sum(record.severity_number >= Severity.ERROR for record in ours) / len(ours)

    def versions(records):
        return {resource["service.version"] for resource, _ in records if resource["service.name"] == "catalogue"}

    assert errors(after) > 3 * errors(before)
    fresh = versions(after) - versions(before)
    assert len(fresh) == 1
    starts = [record.body.string_value for _, record in after if record.body.string_value.startswith("starting cat")]
    assert len(starts) >= Shop(SEED, RATE).pods and all(fresh.copy().pop() in start for start in starts)
