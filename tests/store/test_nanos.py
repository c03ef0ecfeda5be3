import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.signals import LOGS, TRACES
from lakerunner.store.nanos import join_nanos, split_nanos

NS = pa.timestamp("ns", "UTC")
times = st.one_of(st.none(), st.integers(-(2**62), 2**62))
events = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.fixed_dictionaries({"timestamp": times})), max_size=3))


@given(st.lists(st.tuples(times, events), max_size=8))
def test_nothing_is_lost(rows: list[tuple[int | None, list[dict[str, int | None] | None] | None]]) -> None:
    table = pa.table(
        {
            "timestamp": pa.array([time for time, _ in rows], pa.int64()).cast(NS),
            "events": pa.array([event for _, event in rows], pa.list_(pa.struct([("timestamp", NS)]))),
            "other": pa.array(range(len(rows)), pa.int64()),
        },
    )
    written = split_nanos(table)
    assert written.column_names == ["timestamp", "timestamp_nanos", "events", "other"]
    assert written.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    rest = [value for value in written["timestamp_nanos"].to_pylist() if value is not None]
    assert all(0 <= value < 1_000 for value in rest)
    joined = join_nanos(written)
    assert joined.schema.equals(table.schema)
    assert joined.equals(table)


def test_no_described_table_is_written_with_nanoseconds(tmp_path: object) -> None:
    for signal in (LOGS, TRACES):
        for table in signal.tables:
            sink = pa.BufferOutputStream()
            pq.write_table(split_nanos(table.schema().empty_table()), sink)
            assert "NANOS" not in str(pq.read_schema(pa.BufferReader(sink.getvalue())))
            assert "timeUnit=nanoseconds" not in str(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)


def test_columns_read_alone_stay() -> None:
    written = split_nanos(pa.table({"timestamp": pa.array([1_001], NS)}))
    alone = join_nanos(written.select(["timestamp_nanos"]))
    assert alone.column_names == ["timestamp_nanos"]
    assert join_nanos(written.select(["timestamp"])).schema.field("timestamp").type == pa.timestamp("us", "UTC")
