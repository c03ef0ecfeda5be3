"""A slice of the crash matrix: the boxer at all of its points, ingest at its two most telling ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.pipeline.ingest_role import Ingest
from tests.faults.ingest import (
    BOXER_POINTS,
    check_exact,
    crash_boxer,
    crash_ingest,
    nothing_waits,
    put_objects,
    relaying,
)
from tests.pipeline.lake import Lake
from tests.pipeline.test_ingest_end_to_end import ingest, role, through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["role"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("point", BOXER_POINTS)
def test_a_killed_boxer_loses_and_doubles_nothing(point: str, lake: Lake, role: Ingest, spark: SparkSession) -> None:
    with relaying(lake):
        put_objects(lake, TRACES)
        crash_boxer(lake, point)
        through(lake, role)
    check_exact(lake, TRACES)


@pytest.mark.parametrize(("point", "kind"), [("after_commit", METRICS), ("ingest_after_write", LOGS)], ids=str)
def test_a_killed_ingest_loses_and_doubles_nothing(point: str, kind: object, lake: Lake, role: Ingest) -> None:
    signal = METRICS if kind is METRICS else LOGS
    with relaying(lake):
        put_objects(lake, signal)
        crash_ingest(lake, point)
        ingest(lake, role, lambda: nothing_waits(lake))
    check_exact(lake, signal)
