"""A slice of the crash matrix of compaction (`make faults` runs all of it)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.components.kafka import KafkaBroker
from tests.components.postgres import PostgresServer
from tests.faults.compact import POINTS, Cell, run_cell

SLICE = (
    Cell("postgres", "boxer_after_bundle", 1),
    Cell("postgres", "compact_after_upload", 1),
    Cell("postgres", "before_commit", 1),
    Cell("kafka", "after_commit", 1),
)


@pytest.mark.slow
@pytest.mark.parametrize("cell", SLICE, ids=str)
def test_a_killed_compaction_loses_and_doubles_nothing(
    cell: Cell, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    kafka: KafkaBroker | None = request.getfixturevalue("kafka_broker") if cell.bus == "kafka" else None
    run_cell(cell, postgres_server, kafka)


def test_the_matrix_has_every_point_of_compaction() -> None:
    source = Path(__file__).parents[2] / "src" / "lakerunner" / "pipeline" / "compact"
    written = {name for path in source.glob("*.py") for name in re.findall(r'crash_point\("(\w+)"\)', path.read_text())}
    assert written and written <= POINTS.keys()
