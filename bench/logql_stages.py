"""Parse and filter log lines by the stages of LogQL, against Arrow and DuckDB doing the nearest thing.

`python -m bench.logql_stages` prints one JSON line per case. Lines of each kind are made up, different from each other.
Peers: Arrow's JSON reader and DuckDB's `json_extract_string`, both of which know the schema or the paths beforehand;
Arrow's RE2 for a pattern and for logfmt; a copy of the lines for a search. CPU times are the best of several runs.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.stages.compile import compile_stages

_LEVELS = ("info", "warn", "error", "debug")
_ACCESS = r'^(?P<ip>\S+) - (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\w+) (?P<path>\S+) [^"]+" (?P<status>\d+)'
_LOGFMT = r"level=(?P<level>\S+) .*duration=(?P<duration>\S+) .*tenant=(?P<tenant>\S+)"


def json_line(number: int) -> str:
    return json.dumps(
        {
            "level": _LEVELS[number % 4],
            "ts": f"2026-11-01T10:{number % 60:02}:00Z",
            "msg": f"order {number} placed",
            "order": {"id": number, "total": number % 977 / 10, "currency": "EUR", "items": [{"sku": "A-1", "qty": 2}]},
            "user": {"name": f"user-{number % 5000}", "id": number % 5000, "tags": ["new", "vip"]},
            "latency_ms": number % 700,
            "ok": number % 3 == 0,
            "path": f"/api/orders/{number}",
        }
    )


def logfmt_line(number: int) -> str:
    return (
        f'level={_LEVELS[number % 4]} caller=invoice.go:{number % 90} msg="invoice {number} sent" '
        f"amount={number % 977 / 10} duration={number % 700}ms size=12KB tenant=tenant-{number % 5000} retries=1"
    )


def access_line(number: int) -> str:
    return (
        f"10.0.{number // 250 % 250}.{number % 250} - alice [01/Nov/2026:10:00:00 +0000] "
        f'"GET /api/cart?id={number} HTTP/1.1" {200 + number % 5} {number % 90000} "-" "curl/8.5.0" 0.{number % 999:03}'
    )


def entries_of(lines: Sequence[str]) -> Entries:
    stream = pa.array(np.zeros(len(lines), np.int32))
    service = pa.DictionaryArray.from_arrays(stream, pa.array(["bench"]))
    columns = {(Category.STREAM, "service_name"): service}
    return Entries(np.arange(len(lines)), pa.array(lines), columns)


def best_ms(call: Callable[[], object], runs: int) -> float:
    call()
    spent = []
    for _ in range(runs):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return min(spent) * 1e3


def report(case: str, lines: pa.StringArray, ours_ms: float, peer: str, peer_ms: float) -> None:
    line = {
        "bench": "logql_stages",
        "case": f"{case}, {len(lines):,} lines of {pc.sum(pc.binary_length(lines)).as_py() / 1e6:.0f} MB, cpu",
        "value": round(ours_ms, 1),
        "unit": "ms",
        "better": "lower",
        "peer": peer,
        "peer_value": round(peer_ms, 1),
        "ratio": round(ours_ms / peer_ms, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def stage_ms(entries: Entries, text: str, runs: int, wanted: frozenset[str] | None = None) -> float:
    expr = parse(f'{{service_name="bench"}} {text}')
    assert isinstance(expr, ast.LogSelector)
    stage = compile_stages(expr.stages, wanted)
    return best_ms(lambda: stage(entries, lambda: None), runs)


def measure_json(lines: Sequence[str], runs: int) -> None:
    entries = entries_of(lines)
    text = ("\n".join(lines)).encode()
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 30)
    arrow_ms = best_ms(lambda: pyarrow.json.read_json(io.BytesIO(text), whole), runs)
    table = duckdb.connect(config={"threads": 1}).from_arrow(pa.table({"line": entries.lines}))

    def extract(*paths: str) -> Callable[[], object]:
        columns = ", ".join(f"json_extract_string(line, '{path}') AS x{number}" for number, path in enumerate(paths))
        return lambda: table.project(columns).to_arrow_table()

    report("json, all fields", entries.lines, stage_ms(entries, "| json", runs), "arrow json reader", arrow_ms)
    one = frozenset({"order_currency"})
    duckdb_ms = best_ms(extract("$.order.currency"), runs)
    report("json, one field", entries.lines, stage_ms(entries, "| json", runs, one), "duckdb, one path", duckdb_ms)
    ours = stage_ms(entries, '| json cur="order.currency", sku="order.items[0].sku"', runs)
    paths_ms = best_ms(extract("$.order.currency", "$.order.items[0].sku"), runs)
    report("json, two paths", entries.lines, ours, "duckdb, two paths", paths_ms)
    filtered = stage_ms(entries, '| json | level="error" | latency_ms > 600', runs)
    report("json, all fields of few lines", entries.lines, filtered, "arrow json reader", arrow_ms)


def measure_texts(logfmt: Sequence[str], access: Sequence[str], runs: int) -> None:
    entries = entries_of(logfmt)
    peer = best_ms(lambda: pc.extract_regex(entries.lines, _LOGFMT), runs)
    report("logfmt, all keys", entries.lines, stage_ms(entries, "| logfmt", runs), "arrow regexp, 3 keys", peer)
    three = frozenset({"level", "duration", "tenant"})
    report("logfmt, 3 keys", entries.lines, stage_ms(entries, "| logfmt", runs, three), "arrow regexp, 3 keys", peer)
    ours = stage_ms(entries, "| logfmt | duration > 650ms", runs, frozenset({"duration"}))
    report("logfmt, by duration", entries.lines, ours, "arrow regexp, 3 keys", peer)
    entries = entries_of(access)
    peer = best_ms(lambda: pc.extract_regex(entries.lines, _ACCESS), runs)
    ours = stage_ms(entries, '| pattern `<ip> - <user> [<ts>] "<method> <path> <_>" <status> <_>`', runs)
    report("pattern, 6 captures", entries.lines, ours, "arrow regexp, 6 groups", peer)
    report("regexp, 6 groups", entries.lines, stage_ms(entries, f"| regexp `{_ACCESS}`", runs), "arrow regexp", peer)
    one = stage_ms(entries, f"| regexp `{_ACCESS}`", runs, frozenset({"status"}))
    report("regexp, one group needed", entries.lines, one, "arrow regexp, 6 groups", peer)
    copy_ms = best_ms(lambda: entries.lines.buffers()[2].to_pybytes(), runs)
    report("contains, absent", entries.lines, stage_ms(entries, '|= "nowhere"', runs), "copy of the lines", copy_ms)
    ours = stage_ms(entries, '|> `<_> "GET <_>" 201 <_>`', runs)
    report("line pattern", entries.lines, ours, "copy of the lines", copy_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the lines")
    parser.add_argument("--lines", type=int, help="lines of each kind (default 200,000)")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the best counts")
    chosen = parser.parse_args()
    numbers = range(chosen.lines or (20_000 if chosen.quick else 200_000))
    measure_json([json_line(number) for number in numbers], chosen.runs)
    measure_texts([logfmt_line(n) for n in numbers], [access_line(n) for n in numbers], chosen.runs)


if __name__ == "__main__":
    main()
