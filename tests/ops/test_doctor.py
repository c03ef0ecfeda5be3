"""The doctor finds each thing that can be wrong with a deployment, and says how to fix it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable
from lakerunner.ops import doctor
from lakerunner.ops.doctor import Finding
from lakerunner.pipeline.spark import probe
from lakerunner.pipeline.spark.probe import Executor
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.worker.server import WorkerServer
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.load import load_settings
from tests.components.moto import CREDENTIALS, REGION, create_bucket_with_queue, running_moto
from tests.components.process import free_port


def settings_with(folder: Path, **values: object) -> Settings:
    given = {"data.dir": str(folder)} | {name.replace("__", "."): value for name, value in values.items()}
    return load_settings(overrides=given)


def found(subject: str, check: Any) -> Finding:
    return doctor._finding(subject, check)


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = found("folder", lambda: doctor._folder(settings_with(tmp_path / "file" / "data")))
    assert not finding.ok and "chown" in finding.fix
    assert found("folder", lambda: doctor._folder(settings_with(tmp_path / "mine"))).ok


def test_a_role_of_postgresql_without_rights(database_url: str, database: Database) -> None:
    assert found("permissions", lambda: doctor._permissions(database)).ok
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("CREATE ROLE doctors_reader LOGIN")
        try:
            admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO doctors_reader")
            reader = Database(database_url.replace("//postgres@", "//doctors_reader@"))
            finding = found("permissions", lambda: doctor._permissions(reader))
            reader.close()
        finally:
            admin.execute("DROP OWNED BY doctors_reader")
            admin.execute("DROP ROLE doctors_reader")
    assert not finding.ok and "GRANT SELECT, INSERT, UPDATE, DELETE" in finding.fix
    assert "doctors_reader" in finding.fix


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    import boto3

    with pytest.MonkeyPatch.context() as patch, running_moto(tmp_path_factory.mktemp("moto")) as moto:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        options: dict[str, Any] = {"endpoint_url": moto.endpoint, "region_name": REGION}
        s3, sqs = boto3.client("s3", **options), boto3.client("sqs", **options)
        url = create_bucket_with_queue(s3, sqs, "lake")
        s3.put_object(Bucket="lake", Key="otel-raw/a", Body=b"a")
        yield url, moto.endpoint


def test_a_queue_that_answers_and_one_that_does_not_exist(tmp_path: Path, queue: tuple[str, str]) -> None:
    url, endpoint = queue
    place = {"intake__sqs_endpoint": endpoint, "intake__sqs_region": REGION}
    well = found("queue", lambda: doctor._queue(settings_with(tmp_path, intake__sqs_url=url, **place)))
    assert well.ok and url in well.says
    ill = found("queue", lambda: doctor._queue(settings_with(tmp_path, intake__sqs_url=f"{url}-not", **place)))
    assert not ill.ok and ill.fix == "check intake.sqs_url"


def test_objects_that_nobody_notices(tmp_path: Path) -> None:
    off = {"intake__webhook": False, "intake__reconcile_interval_s": 0, "store__url": "s3://lake"}
    finding = found("queue", lambda: doctor._queue(settings_with(tmp_path, **off)))
    assert not finding.ok and "intake.sqs_url" in finding.fix
    finding = found("queue", lambda: doctor._queue(settings_with(tmp_path, **{**off, "intake__webhook": True})))
    assert finding.ok and "webhook" in finding.says


def test_workers_that_answer_refuse_or_are_not_there(tmp_path: Path) -> None:
    def finding(address: str, token: str) -> Finding:
        given = settings_with(tmp_path, query__workers=address, query__worker_token=token)
        return found("workers", lambda: doctor._workers(given))

    assert "scans by itself" in found("workers", lambda: doctor._workers(settings_with(tmp_path))).says
    workers = local_workers(settings_with(tmp_path), "doctor")
    server = WorkerServer("grpc://127.0.0.1:0", workers, "hush", 8, 1 << 30)
    try:
        address = f"127.0.0.1:{server.port}"
        assert finding(address, "hush").ok
        stranger = finding(address, "guess")
        assert not stranger.ok and "the same query.worker_token" in stranger.fix
    finally:
        server.shutdown()
        workers.close()
    gone = finding(f"127.0.0.1:{free_port()}", "hush")
    assert not gone.ok and "start `lakerunner query-worker` there" in gone.fix


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ({}, ""),
        ({"now_s": 3.0}, "NTP"),
        ({"python": "3.1.0"}, "spark package"),
        ({"lakerunner": "0.0.1"}, "spark package"),
        ({"trouble": "no credentials"}, "spark.pass_env"),
    ],
    ids=["well", "clock", "python", "package", "bucket"],
)
def test_executors_that_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], fix: str
) -> None:
    class Jobs:
        def __init__(self, *_: object) -> None: ...

        def run(self, buckets: list[Any]) -> list[Executor]:
            executor = probe.look_around(buckets[0])
            values = {name: getattr(executor, name) for name in Executor.__slots__}
            late_s = change.get("now_s", 0.0)
            return [Executor(**{**values, **change, "now_s": executor.now_s + late_s})]

        def close(self) -> None: ...

    monkeypatch.setattr(probe, "SparkJobs", Jobs)
    given = settings_with(tmp_path, spark__master="spark://127.0.0.1:7077")
    finding = found("spark", lambda: probe.probe_spark(given))
    assert finding.ok is (not fix) and fix in finding.fix


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Jobs:
        def __init__(self, *_: object) -> None: ...

        def run(self, _: list[Any]) -> list[Executor]:
            raise Unavailable("no executor came within 60 s")

        def close(self) -> None: ...

    monkeypatch.setattr(probe, "SparkJobs", Jobs)
    given = settings_with(tmp_path, spark__master="spark://127.0.0.1:7077")
    finding = found("spark", lambda: probe.probe_spark(given))
    assert not finding.ok and "spark.driver.host" in finding.fix and "spark://127.0.0.1:7077" in finding.says
