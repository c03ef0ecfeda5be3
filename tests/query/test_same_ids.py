"""Series with equal ids, or with ids that a hash without a key made equal: no org sees the labels of another, and
crafted labels take nothing from the series of others.
"""

from __future__ import annotations

import uuid

import numpy as np
import orjson
import pytest
import xxhash

from lakerunner.formats.options import MetricOptions, Options
from lakerunner.formats.read import read_object
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.query import metadata
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.scan.samples.arrow import from_batch, to_batches
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import VectorResult
from tests.query.engine import Engine
from tests.query.lake_of_series import LakeOfSeries

_OWNERS = ("alice", "bob")
_QUERIES = ("m", "rate(m[1m])", "sum by (owner) (m)", "h_bucket", "h_count", "sum by (owner, le) (h_bucket)")
_TIMES = np.arange(10) * 15_000
#: Two values of the label `x` of a metric `m` that give both label sets the same XXH3, which was once the id of a
#: series. XXH3 adds up products of 16-byte blocks: two lists of eight million blocks have equal sums within 27 s.
_CRAFTED = ("...aaaaaaaa56414343bbbbbbbb45342162" + "." * 79, "...aaaaaaaa34411541bbbbbbbb56711712" + "." * 79)


@pytest.fixture
def same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash does not see the label `owner`, so that both orgs' series get the same ids."""
    tid = LabelSet.tid
    monkeypatch.setattr(LabelSet, "tid", lambda labels: tid(labels.without("owner")))


def _series(owner: str) -> MemorySource:
    loaded = MemorySource()
    bounds = np.array([1.0, 2.0])
    for number in range(3):
        labels = {"owner": owner, "n": str(number)}
        loaded.add(LabelSet.of({METRIC_NAME: "m", **labels}), _TIMES, np.arange(10.0))
        hists = [
            Histogram(schema=CUSTOM_SCHEMA, count=n, sum=n, pos_index=np.array([0]), pos_count=[n], bounds=bounds)
            for n in np.arange(10.0)
        ]
        loaded.add(LabelSet.of({METRIC_NAME: "h", **labels}), _TIMES, np.zeros(10), histograms=hists)
    return loaded


def _owners(source: LakeQuery, text: str) -> set[str]:
    found = Engine(source).instant(text, int(_TIMES[-1])).value
    assert isinstance(found, VectorResult) and len(found.labels)
    return {labels.get("owner") for labels in found.labels}


@pytest.mark.usefixtures("same_ids")
@pytest.mark.parametrize("text", _QUERIES)
def test_an_answer_has_the_labels_of_its_org(lake: LakeOfSeries, text: str) -> None:
    orgs = {owner: lake.write(_series(owner), temporality="cumulative") for owner in _OWNERS}
    for owner in (*_OWNERS, *reversed(_OWNERS)):
        assert _owners(lake.lake.query(orgs[owner]), text) == {owner}


@pytest.mark.usefixtures("same_ids")
def test_lists_of_series_have_the_labels_of_their_org(lake: LakeOfSeries) -> None:
    orgs = {owner: lake.write(_series(owner), temporality="cumulative") for owner in _OWNERS}
    for owner in (*_OWNERS, *reversed(_OWNERS)):
        source = lake.lake.query(orgs[owner])
        found = metadata.series(source, [], 0, int(_TIMES[-1]))
        assert {labels.get("owner") for labels in found} == {owner}
        # Three counters, and of three histograms each: itself, three buckets, sum and count.
        assert len(found) == 3 + 3 * 6


@pytest.mark.usefixtures("same_ids")
def test_parts_of_workers_are_named_by_their_own_labels() -> None:
    for owner in _OWNERS:
        labels = LabelSet.of({METRIC_NAME: "m", "owner": owner})
        one = np.array([0])
        sent = Samples(np.array([labels.tid()]), [labels], np.array([0, 1]), one, one.astype(np.float64))
        [batch] = to_batches(sent)
        merged = merge([from_batch(batch)], uuid.uuid5(uuid.NAMESPACE_URL, owner))
        assert list(merged.labels) == [labels]


@pytest.mark.parametrize("key", [b"", b"a key of the lake"])
def test_crafted_labels_take_nothing_from_the_series_of_others(lake: LakeOfSeries, key: bytes) -> None:
    hashed = {xxhash.xxh3_64_intdigest(b"__name__\xffm\xfex\xff" + value.encode() + b"\xfe") for value in _CRAFTED}
    assert len(hashed) == 1
    lines = [
        {"name": "m", "labels": {"x": value}, "timestamp": 60 + second, "value": number}
        for number, value in enumerate(_CRAFTED)
        for second in range(3)
    ]
    options = Options(MetricOptions(series_key=key))
    read = read_object(b"\n".join(map(orjson.dumps, lines)), METRICS, options=options).tables
    tables = {
        each.suffix: read[each.suffix].sort_by([(name, "ascending") for name in each.sort_key])
        for each in (SAMPLES, SERIES)
    }
    org_id = uuid.uuid4()
    # In two segments, as samples of a series are.
    lake.commit(org_id, [lake.put_tables(org_id, tables) for _ in range(2)])
    source = lake.lake.query(org_id)
    found = Engine(source).instant("count_over_time(m[1m]) * 10 + m", 62_000).value
    assert isinstance(found, VectorResult)
    by_label = {labels.get("x"): value for labels, value in zip(found.labels, found.values, strict=True)}
    assert by_label == {_CRAFTED[0]: 30.0, _CRAFTED[1]: 31.0}
    listed = metadata.series(source, [], 0, 100_000)
    assert {labels.get("x") for labels in listed} == set(_CRAFTED)
