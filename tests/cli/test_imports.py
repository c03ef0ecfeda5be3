"""A verb imports what it needs and nothing else: heavy packages cost seconds of CPU before the verb does anything."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest

from lakerunner.ops.roles import DEMO_ROLES, ROLES, ROLES_BY_SIGNAL
from lakerunner.pipeline.stages import stage_roles, stage_roles_by_signal

HEAVY = {
    "confluent_kafka", "duckdb", "numba", "numpy", "obstore", "opentelemetry", "pandas", "psycopg", "pyarrow",
    "pyspark", "rich", "starlette", "uvicorn",
}  # fmt: skip

#: Runs a verb and prints the packages that were imported.
SCRIPT = """
import contextlib, io, sys
from lakerunner.cli.main import app
with contextlib.redirect_stdout(io.StringIO()):
    try:
        app(sys.argv[1:])
    except SystemExit:
        pass
import orjson
sys.stdout.write(orjson.dumps([name for name in sys.modules if "." not in name]).decode())
"""
IMPATIENT = ("--set", "index.connect_timeout_s=0.1")
NOBODY = ("--url", "http://127.0.0.1:1")


def imported(*args: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *args], capture_output=True, check=True)
    return HEAVY & set(orjson.loads(done.stdout))


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        (("--version",), set()),
        (("query", "metrics", "up", *NOBODY), set()),
        (("query", "series", "up", *NOBODY), set()),
        (("query", "rows", "logs", *NOBODY), {"pyarrow", "numpy"}),
        (
            ("org", "list", "--set", "index.url=postgresql://x@127.0.0.1:1/x", "--set", "index.connect_timeout_s=0.1"),
            {"psycopg"},
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_verb_imports_only_what_it_needs(args: tuple[str, ...], needed: set[str]) -> None:
    assert imported(*args) <= needed


def test_the_table_of_roles_says_what_the_classes_say() -> None:
    for entry in (*ROLES, *ROLES_BY_SIGNAL, *DEMO_ROLES):
        role = entry.load()
        assert (entry.name, entry.sentence) == (role.name, role.sentence)
    named = {entry.name for entry in (*ROLES, *ROLES_BY_SIGNAL)}
    assert {role.name for role in (*stage_roles(), *stage_roles_by_signal())} <= named
