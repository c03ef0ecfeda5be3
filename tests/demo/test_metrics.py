"""The shop's metrics agree exactly with its traces, counters only fall at resets, and buckets add up."""

from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lakerunner.demo.metrics import INTERVAL_NS
from lakerunner.demo.produce import counted_batches
from lakerunner.demo.shop import Shop
from lakerunner.model.time import NS_PER_S
from tests.demo.requests import KINDS, RATE, SEED, START_NS, next_deploy_ns, pairs_of, points, requests, spans

SECONDS = 300
TIMERS = ("http.server.request.duration", "rpc.server.call.duration")


def series_of(resource, metric, point):
    return metric.name, resource["service.instance.id"], tuple(sorted(pairs_of(point).items()))


@pytest.fixture(scope="module")
def made():
    return list(points(requests("metrics", SECONDS)))


@pytest.mark.parametrize("rate", [RATE, 3_000.0, 30_000.0])
def test_counts_are_those_of_the_bytes(rate):
    for batch in counted_batches("metrics", SEED, START_NS, START_NS + 20 * NS_PER_S, rate):
        kinds = Counter(kind for _, _, kind, _ in points([batch.payload]))
        assert kinds == batch.by_kind
        assert batch.records == kinds.total() > 0


def test_every_kind_and_temporality_occurs(made):
    assert {kind for _, _, kind, _ in made} == set(KINDS)
    sums = {
        (metric.sum.is_monotonic, metric.sum.aggregation_temporality) for _, metric, kind, _ in made if kind == "sum"
    }
    assert sums == {
        (True, pb.AGGREGATION_TEMPORALITY_CUMULATIVE),
        (False, pb.AGGREGATION_TEMPORALITY_CUMULATIVE),
        (True, pb.AGGREGATION_TEMPORALITY_DELTA),
    }


def test_a_series_has_one_point_every_interval(made):
    times = defaultdict(list)
    for resource, metric, _, point in made:
        times[series_of(resource, metric, point)].append(point.time_unix_nano)
        assert point.time_unix_nano % INTERVAL_NS == 0
    for stamps in times.values():
        assert {after - before for before, after in pairwise(stamps)} <= {INTERVAL_NS}


def test_histograms_add_up(made):
    for _, _, kind, point in made:
        if kind == "histogram":
            assert sum(point.bucket_counts) == point.count > 0
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert point.min * point.count <= point.sum * (1 + 1e-9) and point.sum <= point.max * point.count * (
                1 + 1e-9
            )
        elif kind == "exponential_histogram":
            assert sum(point.positive.bucket_counts) + point.zero_count == point.count > 0


def test_exponential_buckets_hold_their_values(made):
    for _, _, kind, point in made:
        if kind == "exponential_histogram":
            base = 2.0 ** (2.0**-point.scale)
            bounds = [base ** (point.positive.offset + at) for at in range(len(point.positive.bucket_counts))]
            low = sum(count * bound for count, bound in zip(point.positive.bucket_counts, bounds, strict=True))
            assert low <= point.sum <= low * base * (1 + 1e-9)


def test_timers_have_counted_every_served_span(made):
    served = Counter()
    for resource, span in spans(requests("traces", SECONDS)):
        if span.kind == Span.SPAN_KIND_SERVER:
            served[resource["k8s.pod.name"]] += 1
    last = {series_of(r, m, p): (r["k8s.pod.name"], p.count) for r, m, _, p in made if m.name in TIMERS}
    counted = Counter()
    for pod, count in last.values():
        counted[pod] += count
    assert counted == served


def test_exemplars_are_spans_that_exist(made):
    known = {(span.trace_id, span.span_id): span for _, span in spans(requests("traces", SECONDS))}
    exemplars = [
        (point, exemplar) for _, metric, kind, point in made if kind == "histogram" for exemplar in point.exemplars
    ]
    assert len(exemplars) > 100
    for point, exemplar in exemplars:
        span = known[exemplar.trace_id, exemplar.span_id]
        took_ns = span.end_time_unix_nano - span.start_time_unix_nano
        assert exemplar.as_double == pytest.approx(took_ns / NS_PER_S)
        assert exemplar.time_unix_nano <= point.time_unix_nano


def test_counters_grow_unless_their_process_began_anew():
    """Over the deploy of a StatefulSet, whose series keep their names."""
    deploy_ns = next_deploy_ns("cart")
    seen = defaultdict(list)
    for resource, metric, kind, point in points(requests("metrics", 600, deploy_ns - 300 * NS_PER_S, 600.0)):
        if metric.name in ("shop.requests", "process.cpu.time") or kind == "histogram":
            value = point.count if kind == "histogram" else max(point.as_int, point.as_double)
            seen[series_of(resource, metric, point)].append((point.start_time_unix_nano, value))
    resets = Counter()
    for series, samples in seen.items():
        for (start, value), (next_start, next_value) in pairwise(samples):
            assert next_start >= start
            if next_start == start:
                assert next_value >= value, series
            else:
                resets[series[1].split(".")[1].split("-")[0], series[0]] += next_value < value
    assert resets["cart", "shop.requests"] >= Shop(SEED, 600.0).pods
    assert resets["cart", "process.cpu.time"] >= Shop(SEED, 600.0).pods


def test_deltas_cover_the_time_between_exports(made):
    starts = [
        (point.time_unix_nano - point.start_time_unix_nano, point.as_double)
        for _, metric, _, point in made
        if metric.name == "shop.revenue"
    ]
    assert {width for width, _ in starts} == {INTERVAL_NS}
    assert sum(value for _, value in starts) > 0
