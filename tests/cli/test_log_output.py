"""Log entries are shown whole and harmless, in every format, batch by batch."""

from __future__ import annotations

import csv
import io

import orjson
import pyarrow as pa
import pyarrow.parquet

from lakerunner.cli import log_output, rows
from lakerunner.cli.log_output import EntryStyle, entries_of
from lakerunner.cli.render import csv_line

HOSTILE = "\x1b]0;owned\x07[red]x[/red]\nnext\u202eline\x9b31m"
BATCH = pa.record_batch(
    {
        "timestamp": pa.array([1_700_000_000_000_000_001, 1_500_000], pa.timestamp("ns", "UTC")),
        "line": pa.array([HOSTILE, "=1+1"]),
        "stream": pa.array(['{"service_name":"cart"}', "{}"]).dictionary_encode(),
        "metadata": pa.array(['{"detected_level":"error","note":"two words"}', "{}"]),
        "parsed": pa.array(['{"status":"500"}', "{}"]),
    }
)


def text(style: EntryStyle) -> list[str]:
    out = io.StringIO()
    log_output.write_text(entries_of([BATCH]), out, style)
    return out.getvalue().splitlines()


def test_text_is_one_harmless_line_per_entry() -> None:
    shown = "\\x1b]0;owned\\x07[red]x[/red]\\nnext\\u202eline\\x9b31m"
    assert text(EntryStyle()) == [
        f"2023-11-14T22:13:20.000000001Z  error  cart  {shown}",
        "1970-01-01T00:00:00.001500Z  -      =1+1",
    ]


def test_labels_are_shown_on_demand() -> None:
    assert text(EntryStyle(attributes=True))[0].endswith(
        '  detected_level=error  note="two words"  service_name=cart  status=500'
    )
    assert text(EntryStyle(fields=("status", "absent")))[0].endswith("  status=500")


def test_only_the_level_is_coloured() -> None:
    coloured = text(EntryStyle(colour=True))[0]
    assert "\x1b[31merror\x1b[0m" in coloured
    assert coloured.replace("\x1b[31m", "").replace("\x1b[0m", "") == text(EntryStyle())[0]


def test_json_and_csv() -> None:
    out = io.BytesIO()
    log_output.write_json(entries_of([BATCH]), out, EntryStyle())
    first, second = map(orjson.loads, out.getvalue().splitlines())
    assert first["line"] == HOSTILE and first["labels"]["status"] == "500" and b"\x9b" not in out.getvalue()
    assert second == {"timestamp": "1970-01-01T00:00:00.001500Z", "line": "=1+1", "labels": {}}
    table = io.StringIO()
    log_output.write_csv(entries_of([BATCH]), table, EntryStyle(fields=("status",)))
    records = list(csv.reader(io.StringIO(table.getvalue())))
    assert records[0] == ["timestamp", "line", "status"]
    assert records[2] == ["1970-01-01T00:00:00.001500Z", "'=1+1", ""]


def test_records_are_read_as_they_were_written() -> None:
    odd = ["", " ", "a", "a,b", 'a"b', '"', '""', "a\nb", "a\rb", "a\r\nb", "\t", "'", "é,\u2028", "x;y", " a "]
    for one in odd:
        for other in odd:
            line = csv_line([one, other])
            assert list(csv.reader(io.StringIO(line, newline=""))) == [[one, other]]
            written = io.StringIO()
            csv.writer(written, lineterminator="\n").writerow([one, other])
            # The module leaves a carriage return as it is, and readers take it for the end of a record.
            assert line == written.getvalue() or "\r" in line


def test_arrow_and_parquet_keep_every_column() -> None:
    out = io.BytesIO()
    rows.write_parquet([BATCH, BATCH], out)
    assert pa.parquet.read_table(io.BytesIO(out.getvalue())).num_rows == 4
