"""A real producer: what the OpenTelemetry collector was sent is what the lake stores, row for row."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from lakerunner.index.profiles import StorageProfile, create_profile
from lakerunner.intake.buckets import own_bucket
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.intake.sqs import SqsSource
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.runtime.stop import Stop
from tests.components.collector import running_collector
from tests.components.moto import Moto, running_moto
from tests.components.peers import peer
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.pipeline.lake import ORG
from tests.pipeline.s3_lake import S3Lake, s3_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow]


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[Moto]:
    peer("otelcol-lake", "otelcol-contrib")
    peer("telemetrygen")
    with running_moto(tmp_path) as server:
        yield server


@pytest.fixture
def s3_lake(moto: Moto, database_url: str, tmp_path: Path, spark: SparkSession) -> Iterator[S3Lake]:
    s3_lake = S3Lake(s3_settings(database_url, tmp_path, moto), spark)
    with s3_lake.lake.database.transaction() as tx:
        bucket = own_bucket(s3_lake.lake.settings)
        create_profile(tx, StorageProfile(uuid.uuid4(), ORG, "edge", bucket, "otel-raw/"))
    yield s3_lake
    s3_lake.close()


def test_rows_are_what_the_generator_sent(moto: Moto, s3_lake: S3Lake, tmp_path: Path) -> None:
    lake = s3_lake.lake
    loops = [clean_roles.relay(lake), clean_roles.boxer(lake), clean_roles.ingest(lake, s3_lake.runner)]
    with beside(_intake(s3_lake), *loops):
        with running_collector(tmp_path, moto, own_bucket(lake.settings).removeprefix("s3://")) as collector:
            pace = ("--rate", "500", "--batch-size", "25")
            logs = collector.feed("logs", "--logs", "300", *pace)
            points = collector.feed("metrics", "--metrics", "300", "--metric-type", "Gauge", *pace)
            points += collector.feed("metrics", "--metrics", "100", "--metric-type", "Histogram", *pace)
            traces = collector.feed("traces", "--traces", "100", "--child-spans", "2", *pace)
        written = [meta.key for meta in lake.store.list("otel-raw/")]
        assert written
        until(lambda: lake.states() == {"done": len(written)}, "every object is done")
    assert (logs, points, traces) == (300, 400, 100)
    assert lake.row_count(LOGS) == logs
    # The generator counts traces: a span that calls, and those that it calls.
    assert lake.row_count(TRACES) == traces * 3
    names = lake.rows(METRICS).column("metric_name")
    # Whatever else is stored tells of the resource, not of a point.
    assert pc.sum(pc.equal(names, "gen")).as_py() == points
    assert set(names.to_pylist()) <= {"gen", "target_info"}


def _intake(s3_lake: S3Lake) -> clean_roles.Loop:
    def run(stop: Stop) -> None:
        settings = s3_lake.lake.settings
        recorder = Recorder(settings, s3_lake.lake.database)
        source = SqsSource(settings)
        source.wait_s = 1.0
        try:
            SourceLoop(source, recorder, 100).run(stop)
        finally:
            source.close()
            recorder.close()

    return run
