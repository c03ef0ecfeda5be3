"""A slice of the crash matrices of the stages after ingest; `make faults` runs all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.components.kafka import KafkaBroker
from tests.components.postgres import PostgresServer
from tests.faults.lifecycle import MATRICES
from tests.faults.matrix import Cell, Components

SLICE = (
    Cell("compact", "postgres", "boxer_after_bundle", 1),
    Cell("compact", "postgres", "compact_after_upload", 1),
    Cell("compact", "kafka", "after_commit", 1),
    Cell("rollup", "postgres", "before_commit", 1),
    Cell("rollup", "kafka", "rollup_after_write", 1),
    Cell("join", "postgres", "before_commit", 1),
    Cell("join", "kafka", "after_commit", 1),
    Cell("delete", "postgres", "before_commit", 1),
    Cell("delete", "kafka", "delete_after_write", 1),
    Cell("sweep", "postgres", "sweep_half_deleted", 1),
    Cell("sweep", "postgres", "sweep_raw_deleted", 1),
    Cell("derive", "postgres", "derive_after_write", 1),
    Cell("settle", "postgres", "settle_after_write", 1),
    Cell("backfill", "kafka", "backfill_after_write", 1),
    Cell("remake", "postgres", "before_commit", 1),
    Cell("ruler", "postgres", "ruler_after_send", 1),
    Cell("ruler", "postgres", "silent_ruler_before_send", 1),
)
_SOURCE = Path(__file__).parents[2] / "src" / "lakerunner"


@pytest.mark.slow
@pytest.mark.parametrize("cell", SLICE, ids=str)
def test_a_killed_stage_loses_and_doubles_nothing(
    cell: Cell, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    kafka: KafkaBroker | None = request.getfixturevalue("kafka_broker") if cell.bus == "kafka" else None
    MATRICES[cell.stage].run_cell(cell, Components(postgres_server, kafka))


@pytest.mark.parametrize("stage", [stage for stage in MATRICES if stage != "join"])
def test_a_matrix_has_every_point_of_its_stage(stage: str) -> None:
    """A crash point that nobody arms tests nothing."""
    written = {
        name for path in _SOURCE.rglob("*.py") for name in re.findall(r'crash_point\("(\w+)"\)', path.read_text())
    }
    of_stage = {name for name in written if name.startswith(f"{stage}_")}
    assert of_stage and of_stage <= set(MATRICES[stage].points)
