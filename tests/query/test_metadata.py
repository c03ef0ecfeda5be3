"""Questions about series: labels, values, meanings, exemplars, how many."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.query import metadata
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from tests.query.lake_of_series import LakeOfSeries, samples_table, series_table

HOUR_MS = 3_600_000
END_MS = 10 * HOUR_MS


def _name(text: str, kind: MatchKind = MatchKind.EQUAL) -> Matcher:
    return Matcher("__name__", kind, text)


def _loaded() -> MemorySource:
    loaded = MemorySource()
    for job in ("api", "web"):
        for code in ("200", "500"):
            labels = LabelSet.of({"__name__": "requests_total", "job": job, "code": code})
            loaded.add(labels, np.arange(0, 3 * HOUR_MS, HOUR_MS), np.arange(3.0))
    loaded.add(LabelSet.of({"__name__": "late", "only": "later"}), [5 * HOUR_MS], [1.0])
    hist = Histogram(
        schema=-53, count=1.0, sum=1.0, pos_index=np.array([0]), pos_count=np.array([1.0]), bounds=(0.5, 2.0)
    )
    loaded.add(LabelSet.of({"__name__": "latency", "job": "api"}), [0], [0.0], histograms=[hist])
    return loaded


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    return lake.write(_loaded(), temporality="delta")


@pytest.fixture
def source(lake: LakeOfSeries, org: uuid.UUID) -> LakeQuery:
    return lake.lake.query(org)


def test_names_of_labels(source: LakeQuery) -> None:
    assert metadata.label_names(source, [], 0, END_MS) == ["__name__", "code", "job", "le", "only"]
    assert metadata.label_names(source, [[_name("requests_total")]], 0, END_MS) == ["__name__", "code", "job"]


def test_values_of_a_label(source: LakeQuery) -> None:
    assert metadata.label_values(source, "job", [], 0, END_MS) == ["api", "web"]
    assert metadata.label_values(source, "nothing", [], 0, END_MS) == []
    names = ["late", "latency", "latency_bucket", "latency_count", "latency_sum", "requests_total"]
    assert metadata.label_values(source, "__name__", [], 0, END_MS) == names
    web = [[Matcher("job", MatchKind.EQUAL, "web")], [_name("late")]]
    assert metadata.label_values(source, "__name__", web, 0, END_MS) == ["late", "requests_total"]
    assert metadata.label_values(source, "le", [], 0, END_MS) == ["+Inf", "0.5", "2"]
    low = [[Matcher("le", MatchKind.EQUAL, "0.5")]]
    assert metadata.label_values(source, "__name__", low, 0, END_MS) == ["latency_bucket"]


def test_exponential_histograms_have_no_classic_names(lake: LakeOfSeries) -> None:
    """They share a type and a row group with histograms that do."""
    loaded = _loaded()
    hist = Histogram(schema=2, count=1.0, sum=1.0, pos_index=np.array([0]), pos_count=np.array([1.0]))
    loaded.add(LabelSet.of({"__name__": "native", "job": "n"}), [0], [0.0], histograms=[hist])
    source = lake.lake.query(lake.write(loaded, temporality="delta"))
    names = [name for name in metadata.label_values(source, "__name__", [], 0, END_MS) if name.startswith("native")]
    assert names == ["native"]
    assert metadata.label_values(source, "job", [[_name("native_count")]], 0, END_MS) == []
    series = metadata.series(source, [[_name("native.*", MatchKind.REGEX)]], 0, END_MS)
    assert [str(labels) for labels in series] == ['native{job="n"}']
    assert len(metadata.series(source, [], 0, END_MS)) == 12
    alone = MemorySource()
    alone.add(LabelSet.of({"__name__": "native", "job": "n"}), [0], [0.0], histograms=[hist])
    source = lake.lake.query(lake.write(alone, temporality="delta"))
    assert metadata.label_values(source, "__name__", [], 0, END_MS) == ["native"]
    assert metadata.label_names(source, [], 0, END_MS) == ["__name__", "job"]


def test_a_time_outside_of_which_nothing_is_told(source: LakeQuery) -> None:
    assert metadata.label_values(source, "__name__", [], 4 * HOUR_MS, END_MS) == ["late"]
    assert metadata.label_names(source, [], END_MS, 2 * END_MS) == []


def test_series(source: LakeQuery) -> None:
    found = metadata.series(source, [[_name("latency.*", MatchKind.REGEX)]], 0, END_MS)
    assert [str(labels) for labels in found] == [
        'latency{job="api"}',
        'latency_bucket{job="api", le="+Inf"}',
        'latency_bucket{job="api", le="0.5"}',
        'latency_bucket{job="api", le="2"}',
        'latency_count{job="api"}',
        'latency_sum{job="api"}',
    ]
    assert len(metadata.series(source, [], 0, END_MS)) == 11


def test_what_metrics_mean(source: LakeQuery) -> None:
    told = metadata.metadata(source, 0, END_MS)
    assert list(told) == ["late", "latency", "requests_total"]
    assert told["latency"] == [metadata.MetricMeta("histogram", "about latency", "s")]
    assert list(metadata.metadata(source, 0, END_MS, metric="late")) == ["late"]


def test_how_many(source: LakeQuery) -> None:
    counted = metadata.cardinality(source, 0, END_MS)
    assert (counted.series, counted.metric_names) == (11, 6)
    assert counted.by_metric_name[0] == ("requests_total", 4)
    assert dict(counted.values_by_label)["code"] == 2
    assert ("job=api", 8) in counted.by_label_pair


def test_exemplars(lake: LakeOfSeries) -> None:
    org_id = uuid.uuid4()
    series = list(_loaded()._series.values())[-1:]
    samples = samples_table(series)
    kind = SAMPLES.schema().field("exemplars").type
    example = {"timestamp": 7, "value": 0.7, "trace_id": "ab" * 16, "span_id": "cd" * 8, "attributes": '{"user":"1"}'}
    at = samples.column_names.index("exemplars")
    samples = samples.set_column(at, samples.schema.field("exemplars"), pa.array([[example]], kind))
    tables = {SAMPLES.suffix: samples, SERIES.suffix: series_table(series, "cumulative")}
    lake.commit(org_id, [lake.put_tables(org_id, tables)])
    source = lake.lake.query(org_id)
    trace = LabelSet.of({"trace_id": "ab" * 16, "span_id": "cd" * 8, "user": "1"})
    for name, text in (("latency", 'latency{job="api"}'), ("latency_bucket", 'latency_bucket{job="api", le="2"}')):
        (found,) = metadata.exemplars(source, [[_name(name)]], 0, HOUR_MS)
        assert (str(found.series), found.labels, found.value, found.timestamp_ms) == (text, trace, 0.7, 7)
    assert metadata.exemplars(source, [[_name("latency")]], 8, HOUR_MS) == []


def test_more_series_than_may_be_listed(lake: LakeOfSeries, org: uuid.UUID) -> None:
    with pytest.raises(LimitHit, match="more than 3"):
        metadata.series(lake.lake.query(org, QueryLimits(max_series=3)), [], 0, END_MS)
