from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.formats.limits import Limits
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signals import LOGS, METRICS


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    decoded = read_object(data, LOGS, "x.csv", **options)
    return [{k: v for k, v in row.items() if v is not None} for row in decoded.tables[""].to_pylist()]


def test_columns_become_fields_and_attributes():
    data = b'time,level,message,code,ratio,ok,zip\n1763200000,warn,"a, ""b""\nc",5,0.5,true,01234\n1763200001,,d,,,,\n'
    first, second = rows(data)
    assert (first["severity_number"], first["message"]) == (13, 'a, "b"\nc')
    assert [first[f"attr_{key}"] for key in ("code", "ratio", "ok", "zip")] == [5, 0.5, True, "01234"]
    assert set(second) == {"timestamp", "level", "message", "chq_fingerprint"}


@pytest.mark.parametrize("delimiter", ["\t", ";", "|", ","])
def test_delimiters_are_found(delimiter):
    data = delimiter.join(["time", "message"]) + "\r\n" + delimiter.join(["1763200000", "hi"]) + "\r\n"
    assert rows(data.encode())[0]["message"] == "hi"


def test_rows_of_the_wrong_length_are_counted():
    decoded = read_object(b"time,message\n1,a\n2\n3,c,d\n4,e\n", LOGS)
    assert decoded.tables[""].column("message").to_pylist() == ["a", "e"]
    assert decoded.rejected == {"wrong_number_of_columns": 2}
    assert [sample.where for sample in decoded.samples["wrong_number_of_columns"]] == ["row 2", "row 3"]


def test_headers_may_be_doubled_empty_or_marked():
    (row,) = rows("\ufefftime,a,a,\n1763200000,1,2,3\n".encode())
    assert (row["attr_a"], row["attr_a_2"], row["attr_column_4"]) == (1, 2, 3)


def test_a_mixed_column_stays_text():
    assert [row["attr_a"] for row in rows(b"time,a\n1,1\n2,x\n3,2.50\n")] == ["1", "x", "2.50"]


def test_metrics():
    decoded = read_object(b"timestamp,name,value,host\n1763200000,load,1.5,a\n1763200000,load,2,b\n", METRICS, "m.csv")
    assert decoded.tables[""].column("value").to_pylist() == [1.5, 2.0]
    assert [row["labels"] for row in decoded.tables[".series"].to_pylist()] == [[("host", "a")], [("host", "b")]]


def test_header_alone_is_empty():
    assert rows(b"time,message\n") == []


def test_an_unusable_file_is_refused():
    with pytest.raises(BadInput, match="no_timestamp"):
        rows(b"a,b\n1,2\n")
    with pytest.raises(LimitHit, match="line_bytes"):
        rows(b"time," + b"m" * 100 + b"\n1,2\n", limits=Limits(line_bytes=50))


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(',"\n;'), max_size=8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**9), TEXT, TEXT), min_size=1, max_size=5))
def test_what_a_csv_writer_writes_is_read_back(records):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([("time", "message", "note"), *records])
    decoded = read_object(out.getvalue().encode(), LOGS, "x.csv")
    # An empty value and an absent one are the same in CSV; the ends of lines are no part of a message.
    wanted = [text.rstrip("\r\n") if text else None for _, text, _ in records]
    assert decoded.tables[""].column("message").to_pylist() == wanted
