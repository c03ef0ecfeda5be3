"""The same questions over the same files: DuckDB, ClickHouse in this process (chDB, if installed), and the floor."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.log_scan.cases import Case

#: Answers a case, and returns the number that all must agree on.
Peer = Callable[[Case], int]
FLOOR = "floor"


def duckdb_over(paths: Sequence[str]) -> Peer:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    table = "read_parquet([" + ", ".join(f"'{path}'" for path in paths) + "])"

    def ask(case: Case) -> int:
        sql = case.sql.format(table=table, where=case.where)
        reader = connection.sql(sql).to_arrow_reader(100_000)
        if case.returns_rows:
            return sum(batch.num_rows for batch in reader)
        return int(reader.read_all().column(0)[0].as_py())

    return ask


def clickhouse_over(paths: Sequence[str]) -> Peer | None:
    """None if chDB is not installed."""
    try:
        session: Any = importlib.import_module("chdb.session").Session()
    except ImportError:
        return None
    # A path pattern, because a query of very many paths is too long.
    folder = paths[0].rsplit("/bucket/", 1)[0]
    table = f"file('{folder}/bucket/**/*.parquet', 'Parquet')"

    def ask(case: Case) -> int:
        sql = case.sql.format(table=table, where=_dialect(case.where))
        sql = sql.replace("epoch(", "toUnixTimestamp(").replace("AS BIGINT", "AS Int64")
        if case.returns_rows:
            return int(session.query(sql, "ArrowStream").rows_read())
        return int(session.query(sql, "CSV").data())

    return ask


def floor_over(paths: Sequence[str]) -> Peer:
    """Decompress the columns that an answer needs, and look for its text in all lines."""

    def ask(case: Case) -> int:
        found = 0
        for path in paths:
            table = pq.read_table(path, columns=list(case.needs), use_threads=False, partitioning=None)
            if case.text:
                found += pc.sum(pc.match_substring(table.column("message"), case.text)).as_py() or 0
        return found

    return ask


def _dialect(where: str) -> str:
    """The condition as ClickHouse writes it. Its literals have escapes."""
    where = re.sub(r"^contains\((.*)\)$", r"position(\1) > 0", where)
    return where.replace("regexp_matches(", "match(").replace("\\", "\\\\")
