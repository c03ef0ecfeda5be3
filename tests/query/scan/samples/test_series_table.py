"""Matching series by coded columns: the same as trying every matcher on every label set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import SERIES
from lakerunner.query.scan.samples.series_table import SeriesTable
from lakerunner.query.series.matchers import Matcher, MatchKind

_text = st.sampled_from(["", "a", "b", "ab", "é", "a\nb"])
_labels = st.dictionaries(st.sampled_from(["x", "y", "Z", "le"]), _text, max_size=4)
_matcher = st.builds(
    Matcher,
    st.sampled_from([METRIC_NAME, "x", "y", "Z", "le", "absent"]),
    st.sampled_from(list(MatchKind)),
    st.sampled_from(["", "a", "b", "a.*", ".+", "m_sum", "m.*"]),
)


def _table(series: list[tuple[str, dict[str, str], bool]]) -> tuple[SeriesTable, list[LabelSet]]:
    sets = {LabelSet.of({**labels, METRIC_NAME: name}): hist for name, labels, hist in series}
    ordered = sorted(sets, key=lambda labels: (labels.get(METRIC_NAME), labels.tid()))
    rows = [
        {
            "tid": labels.tid(),
            "metric_name": labels.get(METRIC_NAME),
            "type": "histogram" if sets[labels] else "gauge",
            "temporality": "delta" if sets[labels] else None,
            "labels": list(labels.without(METRIC_NAME)),
        }
        for labels in ordered
    ]
    return SeriesTable.of(pa.Table.from_pylist(rows, schema=SERIES.schema())), ordered


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["m", "n", "m_sum"]), _labels, st.booleans()), max_size=12),
    st.lists(_matcher, max_size=3),
)
def test_choosing_is_matching_one_by_one(
    series: list[tuple[str, dict[str, str], bool]], matchers: list[Matcher]
) -> None:
    table, ordered = _table(series)
    chosen = table.choose(tuple(matchers))

    def accepted(labels: LabelSet, but: str = "") -> bool:
        return all(matcher.matches(labels.get(matcher.name)) for matcher in matchers if matcher.name != but)

    assert chosen.stored.tolist() == [row for row, labels in enumerate(ordered) if accepted(labels)]
    for suffix in ("_bucket", "_sum", "_count"):
        expected = [
            row
            for row, labels in enumerate(ordered)
            if table.classic[row]
            and accepted(
                labels.with_label(METRIC_NAME, labels.get(METRIC_NAME) + suffix), "le" if suffix == "_bucket" else ""
            )
        ]
        assert chosen.classic.get(suffix, np.zeros(0)).tolist() == expected
    rows = np.arange(len(ordered))
    assert table.label_sets(rows) == ordered
    assert table.rows_of(table.tids[::-1]).tolist() == rows[::-1].tolist()
    assert table.label_names(rows) == {name for labels in ordered for name, _ in labels}
