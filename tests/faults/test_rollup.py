"""A slice of the crash matrix of rollups; `make faults` runs all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.components.kafka import KafkaBroker
from tests.components.postgres import PostgresServer
from tests.faults.ingest import Components
from tests.faults.rollup import Cell, run_cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize(
    "cell", [Cell("postgres", "before_commit", 1), Cell("kafka", "rollup_after_write", 1)], ids=str
)  # fmt: skip
def test_a_killed_rollup_loses_and_doubles_nothing(
    cell: Cell, postgres_server: PostgresServer, request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    kafka: KafkaBroker | None = request.getfixturevalue("kafka_broker") if cell.bus == "kafka" else None
    run_cell(cell, Components(postgres_server, kafka, spark))
