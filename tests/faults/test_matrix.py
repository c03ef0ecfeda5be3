"""A slice of the crash matrix (`make faults` runs all of it): every stage once, on either bus, and Spark once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.components.kafka import KafkaBroker
from tests.components.postgres import PostgresServer
from tests.faults.ingest import POINTS, Cell, Components, run_cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICE = (
    Cell("postgres", "intake_after_record", 1),
    Cell("postgres", "relay_after_publish", 2),
    Cell("postgres", "boxer_after_bundle", 1),
    Cell("postgres", "before_commit", 1),
    Cell("kafka", "after_commit", 1),
    Cell("postgres", "silent_before_commit", 1),
    Cell("postgres", "ingest_after_write", 0),
    Cell("postgres", "store_refuses", 0),
)

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize("cell", SLICE, ids=str)
def test_a_killed_stage_loses_and_doubles_nothing(
    cell: Cell, postgres_server: PostgresServer, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    kafka: KafkaBroker | None = request.getfixturevalue("kafka_broker") if cell.bus == "kafka" else None
    run_cell(cell, Components(postgres_server, kafka, spark))


def test_the_matrix_has_every_point_of_ingest() -> None:
    """A crash point that nobody arms tests nothing."""
    source = Path(__file__).parents[2] / "src" / "lakerunner"
    written = {
        name for path in source.rglob("*.py") for name in re.findall(r'crash_point\("(\w+)"\)', path.read_text())
    }
    # The redriving of dead letters has a test of its own, in the bus' suite; each further stage has its own cells.
    others = (
        "compact_", "derive_", "rollup_", "sweep_", "delete_", "redrive_", "ruler_", "backfill_", "remake_", "settle_",
    )  # fmt: skip
    assert {name for name in written if not name.startswith(others)} == POINTS.keys()
