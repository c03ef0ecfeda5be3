"""Files as loggers write them, and the rows that they must become: `loggers/*.txt`.

A case begins with `=== NAME, FILE`, then comes the file. After `---` follow the rows: time, level and its number,
service, message, separated by bars, and perhaps the trace id. `-` is null; `file` is the time of the file itself.
Except in JSON, `\\n`, `\\t` and `\\e` stand for the characters.
"""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path

import pytest

from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS

FOLDER = Path(__file__).parent / "loggers"
WRITTEN = dt.datetime(2026, 11, 16, 17, tzinfo=dt.UTC)
WRITTEN_NS = int(WRITTEN.timestamp()) * 10**9


def cases() -> dict[str, tuple[str, str, list[str]]]:
    found = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("\n=== ")[1:]:
            title, _, body = part.partition("\n")
            name, _, file = title.rpartition(", ")
            content, _, rows = body.partition("\n---\n")
            found[f"{path.stem}: {name}"] = file, content + "\n", rows.strip().splitlines()
    return found


CASES = cases()


def plain(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\e", "\x1b")


def shown(row: dict[str, object], is_file_time: bool) -> str:
    at = row["timestamp"]
    time = "file" if is_file_time else at.isoformat().replace("+00:00", "Z")
    level = f"{row['severity'] or '-'} {row['severity_number'] or '-'}"
    message = "-" if row["message"] is None else str(row["message"])
    parts = [time, level, str(row["service_name"] or "-"), message.replace("\n", "\\n").replace("\t", "\\t")]
    return " | ".join(parts + ([str(row["trace_id"])] if row["trace_id"] else []))


def rows_of(file: str, content: str) -> list[str]:
    data = content.encode() if file.endswith((".json", ".jsonl")) else plain(content).encode()
    decoded = read_object(data, LOGS, file, options=Options(fallback_time_ns=WRITTEN_NS))
    rows = decoded.tables[""].to_pylist()
    is_file_time = [row["timestamp"].value == WRITTEN_NS for row in rows]
    assert decoded.cut.get("no_time", 0) == sum(is_file_time)
    assert not decoded.rejected
    return [shown(row, own) for row, own in zip(rows, is_file_time, strict=True)]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_file_becomes_its_rows(name):
    file, content, wanted = CASES[name]
    assert rows_of(file, content) == wanted


def test_compressed_text_without_a_suffix_is_read():
    _, content, wanted = CASES["python: asctime, name, level"]
    decoded = read_object(gzip.compress(content.encode()), LOGS, "app", options=Options(fallback_time_ns=WRITTEN_NS))
    assert decoded.format == "text"
    assert decoded.tables[""].num_rows == len(wanted)
