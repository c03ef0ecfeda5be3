"""The same questions over the same files: DuckDB, ClickHouse in this process (chDB, if installed), and the floor."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from bench.traces.cases import Case, Rows

#: Answers SQL.
Peer = Callable[[str], Rows]


def duckdb_over(paths: Sequence[str]) -> Peer:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    connection.execute("SET TimeZone = 'UTC'")
    table = f"read_parquet({list(paths)!r}, hive_partitioning = false)"
    minute = "CAST(epoch_ns(start_timestamp) // 60000000000 AS BIGINT)"
    return lambda sql: connection.execute(sql.format(table=table, minute=minute)).fetchall()


def chdb_over(bucket: Path) -> Peer | None:
    """None if chDB is not installed."""
    try:
        session: Any = importlib.import_module("chdb.session").Session()
    except ImportError:
        return None
    table = f"file('{bucket}/**/*.parquet', 'Parquet')"
    minute = "intDiv(toUnixTimestamp(start_timestamp), 60)"

    def ask(sql: str) -> Rows:
        found = session.query(sql.format(table=table, minute=minute), "JSONCompact").data()
        return [tuple(row) for row in json.loads(found)["data"]]

    return ask


def floor_over(paths: Sequence[str]) -> Callable[[Case], int]:
    """Decompress and decode the columns that an answer needs."""

    def read(case: Case) -> int:
        return sum(pq.read_table(path, columns=list(case.columns), partitioning=None).num_rows for path in paths)

    return read
