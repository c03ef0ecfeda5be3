"""The same questions over the same files: DuckDB, ClickHouse (chDB, if installed), and the floor.

Each peer has a process of its own, so that no library changes the memory, the threads or the caches of another.
"""

from __future__ import annotations

import importlib
import multiprocessing
import re
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.log_scan.cases import Case, cases
from bench.log_scan.lines import lake
from bench.log_scan.times import Times, times_of

from lakerunner.model.errors import Missing

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
        sql = sql.replace("quantile_cont(attr_duration_ms, 0.99)", "quantileExactInclusive(0.99)(attr_duration_ms)")
        sql = re.sub(r"json_extract_string\((\w+), '\$\.(\w+)'\)", r"JSONExtractRaw(\1, '\2')", sql)
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


class PeerProcess:
    """A peer that answers in its own process, which measures itself."""

    def __init__(self, name: str, folder: Path, rows: int) -> None:
        """Missing: the peer is not installed."""
        # Not a fork: what this process has loaded would be there too.
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, name, folder, rows), daemon=True)
        self._process.start()
        if not self._ours.recv():
            raise Missing(f"{name} is not installed", hint="pip install -e '.[bench]'")

    def answer(self, case: Case) -> int:
        return int(self._asked(case, False))

    def times(self, case: Case) -> Times:
        found: Times = self._asked(case, True)
        return found

    def _asked(self, case: Case, is_timed: bool) -> Any:
        self._ours.send((case.name, is_timed))
        return self._ours.recv()

    def close(self) -> None:
        self._ours.send(None)
        self._process.join()


def _serve(connection: Connection, name: str, folder: Path, rows: int) -> None:
    records = lake(folder, rows)
    peer = _PEERS[name](records.paths)
    connection.send(peer is not None)
    by_name = {case.name: case for case in cases(records)}
    while peer is not None and (asked := connection.recv()) is not None:
        name, is_timed = asked
        call = partial(peer, by_name[name])
        connection.send(times_of(call) if is_timed else call())


def _dialect(where: str) -> str:
    """The condition as ClickHouse writes it. Its literals have escapes."""
    where = re.sub(r"^contains\((.*)\)$", r"position(\1) > 0", where)
    return where.replace("regexp_matches(", "match(").replace("\\", "\\\\")


_PEERS: dict[str, Callable[[Sequence[str]], Peer | None]] = {
    "DuckDB": duckdb_over,
    FLOOR: floor_over,
    "chDB": clickhouse_over,
}
PEERS = tuple(_PEERS)
