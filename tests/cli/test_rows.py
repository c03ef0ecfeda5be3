"""Rows are shown whole and harmless, in every format, batch by batch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import orjson
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from lakerunner.cli import rows
from lakerunner.formats.attributes import OVERFLOW, OVERFLOW_TYPE
from lakerunner.model.signals.logs import LOGS
from lakerunner.model.signals.traces import EVENT, TRACES

HOSTILE = "\x1b]0;owned\x07[red]x[/red]\nnext\u202eline\x9b31m"
BATCH = pa.record_batch(
    {
        "timestamp": pa.array([1_700_000_000_000_000_001, 1_500_000], pa.timestamp("ns", "UTC")),
        "service_name": pa.array(["cart", None]),
        "severity": pa.array(["ERROR", "INFO"]),
        "message": pa.array([HOSTILE, "=1+1"]),
        "attr_http_status": pa.array([500, None]),
        "attr_ratio": pa.array([float("nan"), 0.5]),
        "attr_text": pa.array(["two words", None]),
        OVERFLOW: pa.array([[("attr_more", "x\ty")], None], OVERFLOW_TYPE),
    }
)


def text(**options: bool) -> str:
    out = io.StringIO()
    rows.write_text([BATCH], out, LOGS, **options)
    return out.getvalue()


def test_text_is_one_harmless_line_per_row() -> None:
    lines = text().splitlines()
    assert lines[0] == (
        "2023-11-14T22:13:20.000000001Z  cart  ERROR  \\x1b]0;owned\\x07[red]x[/red]\\nnext\\u202eline\\x9b31m"
    )
    assert lines[1:] == ["1970-01-01T00:00:00.001500Z  -  INFO   =1+1"]


def test_attributes_are_shown_on_demand() -> None:
    first = text(attributes=True).splitlines()[0]
    assert first.endswith('attr_http_status=500  attr_ratio=nan  attr_text="two words"  attr_more=x\\ty')
    assert "attr_" not in text()


def test_only_the_level_is_coloured() -> None:
    coloured = text(colour=True)
    assert "\x1b[31mERROR\x1b[0m" in coloured
    assert coloured.replace("\x1b[31m", "").replace("\x1b[36m", "").replace("\x1b[0m", "") == text()


def test_a_span_shows_status_duration_and_name() -> None:
    batch = pa.record_batch(
        {
            "start_timestamp": pa.array([0], pa.timestamp("ns", "UTC")),
            "service_name": pa.array(["cart"]),
            "status_code": pa.array(["error"]),
            "duration_ns": pa.array([2_500_000]),
            "name": pa.array(["GET /"]),
            "events": pa.array([[{"timestamp": 1, "name": "retry"}]], pa.list_(EVENT)),
        }
    )
    out = io.StringIO()
    rows.write_text([batch], out, TRACES)
    assert out.getvalue() == "1970-01-01T00:00:00Z  cart  error  2.500ms  GET /\n"
    lines = io.BytesIO()
    rows.write_json([batch], lines)
    event = orjson.loads(lines.getvalue())["events"][0]
    assert (event["timestamp"], event["name"]) == ("1970-01-01T00:00:00.000000001Z", "retry")


def test_json_has_an_object_per_line() -> None:
    out = io.BytesIO()
    rows.write_json([BATCH, BATCH], out)
    documents = [orjson.loads(line) for line in out.getvalue().splitlines()]
    assert len(documents) == 4
    assert documents[0] == {
        "timestamp": "2023-11-14T22:13:20.000000001Z",
        "service_name": "cart",
        "severity": "ERROR",
        "message": HOSTILE,
        "attr_http_status": 500,
        "attr_ratio": "nan",
        "attr_text": "two words",
        "attr_more": "x\ty",
    }
    assert "service_name" not in documents[1]


def test_csv_has_a_head_and_defused_formulas() -> None:
    out = io.StringIO()
    rows.write_csv([BATCH, BATCH], out)
    records = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert len(records) == 4
    assert records[0]["message"] == HOSTILE
    assert records[1]["message"] == "'=1+1"
    assert records[1]["service_name"] == ""
    assert records[0]["timestamp"] == "2023-11-14T22:13:20.000000001Z"


def test_arrow_and_parquet_are_whole() -> None:
    out = io.BytesIO()
    rows.write_arrow([BATCH, BATCH], out)
    # Without the column that has a NaN, which equals nothing.
    wanted = pa.Table.from_batches([BATCH, BATCH]).drop_columns("attr_ratio")
    assert pa.ipc.open_stream(out.getvalue()).read_all().drop_columns("attr_ratio").equals(wanted)
    file = io.BytesIO()
    rows.write_parquet([BATCH, BATCH], file)
    assert pa.parquet.read_table(io.BytesIO(file.getvalue())).num_rows == 4


def test_parquet_goes_to_a_pipe() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError("a pipe has no place")

    pipe = Pipe()
    rows.write_parquet([BATCH], pipe)
    assert pa.parquet.read_table(io.BytesIO(pipe.getvalue())).num_rows == 2


@pytest.mark.parametrize("kind", ["text", "json", "csv"])
def test_rows_go_out_before_the_next_batch_is_made(kind: str) -> None:
    seen: list[int] = []
    binary, plain = io.BytesIO(), io.StringIO()

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            seen.append(len(binary.getvalue()) + len(plain.getvalue()))
            yield BATCH

    if kind == "json":
        rows.write_json(batches(), binary)
    elif kind == "csv":
        rows.write_csv(batches(), plain)
    else:
        rows.write_text(batches(), plain, LOGS)
    assert seen[0] == 0 < seen[1] < seen[2]


def test_write_rows_counts_and_writes_to_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert rows.write_rows([BATCH, BATCH], rows.DataFormat.JSON, LOGS) == 4
    assert len(capsysbinary.readouterr().out.splitlines()) == 4
    for kind in rows.DataFormat:
        assert rows.write_rows([], kind, LOGS) == 0
