from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits
from lakerunner.formats.number_text import float_text
from lakerunner.formats.options import MetricOptions, Options
from lakerunner.formats.otlp.decode import read_messages
from lakerunner.formats.otlp.names import metric_name
from lakerunner.model.labels import LabelSet, prometheus_label
from lakerunner.model.signals import METRICS
from tests.examples import examples
from tests.formats import reference
from tests.formats.otlp_samples import START_NS, metric_batches, pairs, resource_of
from tests.formats.otlp_strategies import TEXT, key_values

STALE_BITS = 0x7FF0000000000002
DELTA, CUMULATIVE = 1, 2
AT = {"time_unix_nano": START_NS}
AT_MS = START_NS // 1_000_000


def decode(batch: MetricsData, **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Tally]:
    tally = Tally()
    tables = read_messages(
        [batch.SerializeToString()], METRICS, Limits(), Options(metrics=MetricOptions(**options)), tally
    )
    return tables[""].to_pylist(), tables[".series"].to_pylist(), tally


def one_metric(**fields: Any) -> tuple[MetricsData, Any]:
    batch = MetricsData()
    parent = batch.resource_metrics.add(resource=resource_of("cart", 1))
    return batch, parent.scope_metrics.add().metrics.add(**fields)


def bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


@pytest.mark.parametrize(
    ("name", "unit", "kind", "wanted"),
    [
        ("system.io", "By", "sum", "system_io_bytes_total"),
        ("system.network.dropped", "{packets}", "sum", "system_network_dropped_total"),
        ("system.network.dropped.total", "{packets}", "sum", "system_network_dropped_total"),
        ("process.runtime.jvm.gc_total", "1", "sum", "process_runtime_jvm_gc_total"),
        ("cpu.utilization", "1", "gauge", "cpu_utilization_ratio"),
        ("cpu.utilization.ratio", "1", "gauge", "cpu_utilization_ratio"),
        ("http.duration", "ms", "histogram", "http_duration_milliseconds"),
        ("http.duration.milliseconds", "ms", "histogram", "http_duration_milliseconds"),
        ("disk.speed", "By/s", "gauge", "disk_speed_bytes_per_second"),
        ("disk.speed", "By/{second}", "gauge", "disk_speed_bytes"),
        ("odd  name//here", "", "gauge", "odd_name_here"),
        ("2fast", "", "gauge", "_2fast"),
        ("ns:rule", "", "gauge", "ns:rule"),
        ("temp", "Cel", "gauge", "temp_celsius"),
        ("hits", "hits/min", "gauge", "hits_per_min"),
        ("speed", "km/h", "gauge", "speed_km_per_hour"),
        ("...", "", "gauge", ""),
        ("", "s", "gauge", "seconds"),
    ],
)
def test_names_follow_prometheus(name, unit, kind, wanted):
    assert metric_name(name, unit, monotonic=kind == "sum", gauge=kind == "gauge") == wanted


@pytest.mark.parametrize(("temporality", "word"), [(CUMULATIVE, "cumulative"), (DELTA, "delta")])
@pytest.mark.parametrize("monotonic", [True, False])
def test_a_sum_keeps_how_it_counts(temporality, word, monotonic):
    batch, metric = one_metric(name="requests", unit="1", description="All of them.")
    metric.sum.aggregation_temporality = temporality
    metric.sum.is_monotonic = monotonic
    metric.sum.data_points.add(
        as_int=7, start_time_unix_nano=START_NS - 5_000_000, attributes=pairs({"a.b": "c"}), **AT
    )
    samples, series, tally = decode(batch, target_info=False)
    assert [(s["value"], s["timestamp"].timestamp() * 1_000) for s in samples] == [(7.0, AT_MS)]
    assert samples[0]["start_timestamp"].timestamp() * 1_000 == AT_MS - 5
    name = "requests_total" if monotonic else "requests"
    labels = {"a_b": "c", "instance": "cart-1", "job": "shop/cart"}
    assert series == [
        {
            "tid": LabelSet.of(labels | {"__name__": name}).tid(),
            "metric_name": name,
            "otel_name": "requests",
            "type": "counter" if monotonic else "gauge",
            "unit": "1",
            "description": "All of them.",
            "temporality": word,
            "monotonic": monotonic,
            "labels": sorted(labels.items()),
        }
    ]
    assert samples[0]["tid"] == series[0]["tid"]
    assert not tally.rejected


def test_values_are_exact_and_absent_ones_are_stale_markers():
    batch, metric = one_metric(name="g")
    sent = [1.5, float("nan"), -0.0, float("inf"), 5e-324]
    for value in sent:
        metric.gauge.data_points.add(as_double=value, **AT)
    metric.gauge.data_points.add(as_int=2**53 + 1, **AT)
    metric.gauge.data_points.add(flags=1, **AT)
    metric.gauge.data_points.add(as_double=3.0, flags=1, **AT)
    metric.gauge.data_points.add(**AT)
    samples, _, tally = decode(batch, target_info=False)
    found = [bits(sample["value"]) for sample in samples]
    assert found == [*(bits(value) for value in sent), bits(float(2**53 + 1)), STALE_BITS, STALE_BITS]
    assert all(sample["start_timestamp"] is None for sample in samples)
    assert tally.rejected == {"point_without_value": 1}


def test_an_explicit_histogram_is_one_native_histogram():
    batch, metric = one_metric(name="latency", unit="s")
    metric.histogram.aggregation_temporality = CUMULATIVE
    add = metric.histogram.data_points.add
    add(count=9, sum=4.5, bucket_counts=[0, 2, 0, 7], explicit_bounds=[1, 2, 3], **AT)
    add(count=4, bucket_counts=[1, 0, 0, 0, 0, 3], explicit_bounds=[1, 2, 3, 4, 5], **AT)
    add(count=3, sum=1.0, **AT)
    add(count=0, sum=0.0, bucket_counts=[0, 0], explicit_bounds=[1], **AT)
    add(flags=1, **AT)
    samples, series, _ = decode(batch, target_info=False)
    assert [s["h_schema"] for s in samples] == [-53] * 5
    assert [s["h_custom_values"] for s in samples] == [[1, 2, 3], [1, 2, 3, 4, 5], [], [1], []]
    assert [s["h_positive_spans"] for s in samples] == [
        [{"offset": 1, "length": 3}],
        [{"offset": 0, "length": 1}, {"offset": 4, "length": 1}],
        [{"offset": 0, "length": 1}],
        [],
        [],
    ]
    assert [s["h_positive_buckets"] for s in samples] == [[2, 0, 7], [1, 3], [3], [], []]
    assert [s["h_count"] for s in samples] == [9, 4, 3, 0, 0]
    assert [s["h_sum"] for s in samples[:4]] == [4.5, None, 1.0, 0.0]
    assert bits(samples[4]["h_sum"]) == STALE_BITS
    assert {s["h_reset_hint"] for s in samples} == {0}
    assert all(s["value"] is None for s in samples)
    assert [(s["metric_name"], s["type"]) for s in series] == [("latency_seconds", "histogram")]


@pytest.mark.parametrize(
    ("counts", "bounds", "reason"),
    [
        ([1, 2], [1, 2], "bucket_count_mismatch"),
        ([1], [1.0], "bucket_count_mismatch"),
        ([1, 2, 3], [2, 1], "bounds_not_increasing"),
        ([1, 2, 3], [1, float("inf")], "bounds_not_increasing"),
        ([1, 2, 3], [1, float("nan")], "bounds_not_increasing"),
    ],
)
def test_a_malformed_histogram_is_refused_and_its_neighbour_lands(counts, bounds, reason):
    batch, metric = one_metric(name="latency")
    metric.histogram.aggregation_temporality = DELTA
    metric.histogram.data_points.add(count=3, bucket_counts=counts, explicit_bounds=bounds, **AT)
    metric.histogram.data_points.add(count=3, bucket_counts=[3, 0], explicit_bounds=[1], **AT)
    samples, _, tally = decode(batch, target_info=False)
    assert [(s["h_positive_buckets"], s["h_reset_hint"]) for s in samples] == [([3.0], 3)]
    assert tally.rejected == {reason: 1}


def buckets_of(sample: dict[str, Any], side: str) -> dict[int, float]:
    """The non-empty buckets by index, spelled out from spans."""
    found, index, place = {}, 0, 0
    for span in sample[f"h_{side}_spans"]:
        index += span["offset"]
        for _ in range(span["length"]):
            found[index] = sample[f"h_{side}_buckets"][place]
            index, place = index + 1, place + 1
    assert place == len(sample[f"h_{side}_buckets"])
    return {index: count for index, count in found.items() if count}


SIDE = st.tuples(st.integers(-1_000, 1_000), st.lists(st.integers(0, 3) | st.integers(0, 2**50), max_size=40))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(-4, 20), SIDE, SIDE, st.integers(0, 9)), min_size=1, max_size=4))
@example([(11, (-3, [0, 0, 3, 4, 0, 0, 0, 0, 0, 1]), (0, []), 0)])
def test_exponential_buckets_mean_the_same(points):
    batch, metric = one_metric(name="e")
    metric.exponential_histogram.aggregation_temporality = CUMULATIVE
    for scale, positive, negative, zero in points:
        point = metric.exponential_histogram.data_points.add(scale=scale, zero_count=zero, count=5, **AT)
        for side, (offset, counts) in ((point.positive, positive), (point.negative, negative)):
            side.offset = offset
            side.bucket_counts.extend(counts)
    samples, _, _ = decode(batch, target_info=False)
    for sample, (scale, positive, negative, zero) in zip(samples, points, strict=True):
        assert sample["h_schema"] == min(scale, 8)
        assert (sample["h_zero_count"], sample["h_zero_threshold"]) == (zero, 1e-128)
        for side, (offset, counts) in (("positive", positive), ("negative", negative)):
            wanted: dict[int, float] = {}
            for place, count in enumerate(counts):
                # OTLP's bucket i is (base^i, base^(i+1)]; the native one of index i ends at base^i.
                index = math.floor((offset + place) / 2 ** max(scale - 8, 0)) + 1
                wanted[index] = wanted.get(index, 0) + count
            assert buckets_of(sample, side) == {index: count for index, count in wanted.items() if count}


def test_exponential_scales_beyond_reach_are_refused():
    batch, metric = one_metric(name="e")
    metric.exponential_histogram.aggregation_temporality = DELTA
    add = metric.exponential_histogram.data_points.add
    add(scale=-5, count=1, **AT)
    add(scale=0, count=1, **AT).positive.offset = 2**31 - 1
    add(scale=0, count=1, zero_threshold=0.5, **AT)
    samples, _, tally = decode(batch, target_info=False)
    assert [(s["h_zero_threshold"], s["h_reset_hint"]) for s in samples] == [(0.5, 3)]
    assert tally.rejected == {"exponential_scale_too_small": 1, "bucket_index_out_of_range": 1}


def test_a_summary_is_quantiles_sum_and_count():
    batch, metric = one_metric(name="rpc", unit="s")
    point = metric.summary.data_points.add(count=10, sum=2.5, attributes=pairs({"m": "get"}), **AT)
    point.quantile_values.add(quantile=0.5, value=0.1)
    point.quantile_values.add(quantile=1.0, value=0.9)
    metric.summary.data_points.add(flags=1, attributes=pairs({"m": "put"}), **AT)
    samples, series, _ = decode(batch, target_info=False)
    by_tid = {s["tid"]: (s["metric_name"], dict(s["labels"]).get("quantile"), dict(s["labels"])["m"]) for s in series}
    found = {by_tid[s["tid"]]: s["value"] for s in samples}
    assert {key: value for key, value in found.items() if key[2] == "get"} == {
        ("rpc_seconds_sum", None, "get"): 2.5,
        ("rpc_seconds_count", None, "get"): 10.0,
        ("rpc_seconds", "0.5", "get"): 0.1,
        ("rpc_seconds", "1", "get"): 0.9,
    }
    assert {bits(value) for key, value in found.items() if key[2] == "put"} == {STALE_BITS}
    assert {s["type"] for s in series} == {"summary"}


def test_exemplars_keep_their_trace():
    batch, metric = one_metric(name="g")
    metric.gauge.data_points.add(as_int=1, **AT)
    point = metric.gauge.data_points.add(as_int=2, **AT)
    point.exemplars.add(as_int=3, trace_id=b"t" * 16, span_id=b"s" * 8, filtered_attributes=pairs({"k": 1}), **AT)
    samples, _, _ = decode(batch, target_info=False)
    assert samples[0]["exemplars"] is None
    (exemplar,) = samples[1]["exemplars"]
    assert (exemplar["value"], exemplar["trace_id"], exemplar["span_id"]) == (3.0, "74" * 16, "73" * 8)
    assert exemplar["attributes"] == '{"k":1}'
    assert exemplar["timestamp"].timestamp() * 1_000 == AT_MS


def test_what_cannot_be_named_timed_or_counted_is_refused():
    batch, metric = one_metric(name="...")
    metric.gauge.data_points.add(as_int=1, **AT)
    child = batch.resource_metrics[0].scope_metrics[0]
    child.metrics.add(name="unspecified").sum.data_points.add(as_int=1, **AT)
    child.metrics.add(name="empty").gauge.SetInParent()
    child.metrics.add(name="timeless").gauge.data_points.add(as_int=1)
    child.metrics.add(name="good").gauge.data_points.add(as_int=1, **AT)
    samples, series, tally = decode(batch, target_info=False)
    assert [s["metric_name"] for s in samples] == [s["metric_name"] for s in series] == ["good"]
    assert tally.rejected == {
        "metric_without_name_or_temporality": 2,
        "metric_without_points": 1,
        "no_timestamp": 1,
    }


def test_target_info_carries_the_other_resource_attributes():
    batch, metric = one_metric(name="g")
    for minute in (0, 1, 2, 3, 4, 5):
        metric.gauge.data_points.add(as_int=1, time_unix_nano=START_NS + minute * 60_000_000_000)
    samples, series, _ = decode(batch)
    (info,) = [s for s in series if s["metric_name"] == "target_info"]
    labels = dict(info["labels"])
    assert (labels["job"], labels["instance"], labels["k8s_node_name"]) == ("shop/cart", "cart-1", "node-1")
    assert not {"service_name", "service_namespace", "service_instance_id"} & labels.keys()
    times = sorted(s["timestamp"].timestamp() - START_NS / 1e9 for s in samples if s["tid"] == info["tid"])
    assert times[0] == 0 and times[-1] == 300
    assert max(np.diff(times)) <= 150
    assert {s["value"] for s in samples if s["tid"] == info["tid"]} == {1.0}


@pytest.mark.parametrize(
    "attributes", [{"k8s.pod": "p"}, {"service.name": "s", "service.instance.id": "i"}, {"service.name": "", "a": "b"}]
)
def test_target_info_needs_a_target_and_something_to_say(attributes):
    batch = MetricsData()
    parent = batch.resource_metrics.add()
    parent.resource.attributes.extend(pairs(attributes))
    parent.scope_metrics.add().metrics.add(name="g").gauge.data_points.add(as_int=1, **AT)
    _, series, _ = decode(batch)
    assert [s["metric_name"] for s in series] == ["g"]


def test_a_wrong_clock_does_not_make_target_info_endless():
    batch, metric = one_metric(name="g")
    metric.gauge.data_points.add(as_int=1, time_unix_nano=1_000_000)
    metric.gauge.data_points.add(as_int=1, **AT)
    samples, _, _ = decode(batch)
    assert len(samples) == 4  # two of target_info


def expected_labels(resource: Any, scope: Any, attributes: Any, name: str, options: MetricOptions) -> dict[str, str]:
    """The labels of one point, by the letter of Prometheus' translation."""

    def word(value: Any) -> str:
        return reference.message(value) or ""

    labels: dict[str, str] = {}
    for pair in sorted(attributes, key=lambda pair: pair.key):
        key = prometheus_label(pair.key)
        labels[key] = f"{labels[key]};{word(pair.value)}" if key in labels else word(pair.value)
    of_resource: dict[str, str] = {}
    for pair in resource:
        of_resource.setdefault(pair.key, word(pair.value))
    for key in sorted(of_resource):
        if key in options.promoted_resource_attributes:
            labels.setdefault(prometheus_label(key), of_resource[key])
    if options.promote_scope and scope.name:
        labels["otel_scope_name"], labels["otel_scope_version"] = scope.name, scope.version
    if "service.name" in of_resource:
        labels["job"] = of_resource["service.name"]
    labels["__name__"] = name
    return {key: value for key, value in labels.items() if value}


def test_metrics_without_points_lend_no_name():
    batch, empty = one_metric(name="one")
    metrics = batch.resource_metrics[0].scope_metrics[0].metrics
    metrics.add(name="two")
    metrics.add(name="one").gauge.data_points.add(as_int=1, **AT)
    samples, _, _ = decode(batch, target_info=False)
    assert not empty.WhichOneof("data")
    assert [sample["metric_name"] for sample in samples] == ["one"]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_series_are_what_the_reference_names(data):
    options = MetricOptions(
        promoted_resource_attributes=data.draw(st.sampled_from([(), ("a.b", "x-y"), ("a_b", "a.b", "1z")])),
        promote_scope=data.draw(st.booleans()),
        target_info=False,
    )
    batch, wanted = MetricsData(), []
    for _ in range(data.draw(st.integers(1, 3))):
        parent = batch.resource_metrics.add()
        parent.resource.attributes.extend(data.draw(key_values()))
        child = parent.scope_metrics.add()
        child.scope.name, child.scope.version = data.draw(st.sampled_from(["", "lib"])), data.draw(TEXT)
        for name in data.draw(st.lists(st.sampled_from(["one", "two"]), max_size=3)):
            metric = child.metrics.add(name=name)
            for attributes in data.draw(st.lists(key_values(), max_size=3)):
                metric.gauge.data_points.add(as_int=len(wanted), attributes=attributes, **AT)
                wanted.append(expected_labels(parent.resource.attributes, child.scope, attributes, name, options))
    tables = read_messages([batch.SerializeToString()], METRICS, Limits(), Options(metrics=options), Tally())
    samples = tables[""].to_pylist()
    series = {s["tid"]: {**dict(s["labels"]), "__name__": s["metric_name"]} for s in tables[".series"].to_pylist()}
    assert len(series) == tables[".series"].num_rows
    assert [series[s["tid"]] for s in sorted(samples, key=lambda s: s["value"])] == wanted
    assert all(LabelSet.of(labels).tid() == tid for tid, labels in series.items())


def test_a_realistic_batch_lands_whole():
    batch = next(metric_batches(1_200, series=1_200))
    samples, series, tally = decode(batch)
    assert len(samples) == 1_204 and len(series) == 1_204
    assert not tally.rejected and not tally.cut


def test_floats_are_written_as_prometheus_writes_them():
    assert [float_text(v) for v in (0.1, 100.0, 1e20, 1e21, 1e-6, 9.9e-7, -2.5, 1.5e300, 5e-324)] == [
        "0.1", "100", "100000000000000000000", "1e+21", "0.000001", "9.9e-7", "-2.5", "1.5e+300", "5e-324",
    ]  # fmt: skip


def test_empty_messages_give_empty_tables():
    tables = read_messages([b""], METRICS, Limits(), Options(), Tally())
    assert [tables[table.suffix].schema for table in METRICS.tables] == [table.schema() for table in METRICS.tables]
    assert isinstance(tables[""], pa.Table)
