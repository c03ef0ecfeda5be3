"""A lake with an index and a bucket, and the checks that tests make on it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from lakerunner.bus.messages import ObjectSeen, decode
from lakerunner.index import outbox
from lakerunner.index.database import Database
from lakerunner.index.orgs import create_org
from lakerunner.index.profiles import StorageProfile, create_profile
from lakerunner.intake.record import Recorder
from lakerunner.intake.rejections import RejectedRow, list_rejected
from lakerunner.runtime.settings import HttpSettings, IndexSettings, IntakeSettings, Settings, StoreSettings
from tests.components.moto import CREDENTIALS, REGION, Moto, create_bucket_with_queue

_numbers = itertools.count()
ORG = uuid.UUID("11111111-2222-4333-8444-555555555555")


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CREDENTIALS, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(name, value)


@dataclass
class Lake:
    """Settings over a real index and a real bucket."""

    settings: Settings
    database: Database

    @property
    def bucket(self) -> str:
        return self.settings.store_url

    def add_profile(self, prefix: str, *, bucket: str | None = None, signal: str | None = None, **more: str) -> None:
        with self.database.transaction() as tx:
            profile = StorageProfile(uuid.uuid4(), ORG, "c1", bucket or self.bucket, prefix, signal, **more)
            create_profile(tx, profile)

    def ledger(self) -> list[dict[str, Any]]:
        with self.database.transaction() as tx:
            return tx.execute("SELECT * FROM raw_object ORDER BY key, seen_at").fetchall()

    def keys(self) -> list[str]:
        return [row["key"] for row in self.ledger()]

    def sent(self) -> list[ObjectSeen]:
        return [decode(ObjectSeen, each.message.payload) for each in outbox.pending(self.database, 100_000)]

    def rejected(self) -> list[RejectedRow]:
        with self.database.transaction() as tx:
            return list_rejected(tx)

    def assert_each_once(self, keys: list[str]) -> None:
        """Assert that exactly these keys have one row and one message each."""
        assert self.keys() == sorted(keys)
        assert sorted(message.key for message in self.sent()) == sorted(keys)


@pytest.fixture
def make_lake(database: Database, database_url: str, tmp_path: Path) -> Callable[..., Lake]:
    def make(store: StoreSettings | None = None, **intake: Any) -> Lake:
        with database.transaction() as tx:
            create_org(tx, "acme", ORG)
        (tmp_path / "bucket").mkdir(exist_ok=True)
        fast = {"folder_poll_s": 0.05, "folder_settle_s": 0.1, "reconcile_interval_s": 0.0, **intake}
        settings = Settings(
            index=IndexSettings(url=database_url, connect_timeout_s=2.0),
            store=store or StoreSettings(url=(tmp_path / "bucket").as_uri()),
            intake=IntakeSettings(**fast),
            http=HttpSettings(port=0),
        )
        return Lake(settings, database)

    return make


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    """A lake over a folder."""
    return make_lake()


@pytest.fixture
def make_recorder() -> Iterator[Callable[[Lake], Recorder]]:
    made: list[Recorder] = []

    def make(lake: Lake) -> Recorder:
        made.append(Recorder(lake.settings, lake.database))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()


@pytest.fixture
def recorder(lake: Lake, make_recorder: Callable[[Lake], Recorder]) -> Recorder:
    return make_recorder(lake)


@dataclass
class S3Lake:
    """A lake over a bucket whose events go to a queue, as S3 sends them."""

    lake: Lake
    bucket_name: str
    queue_url: str
    s3: Any
    sqs: Any

    def put(self, key: str, body: bytes = b"x") -> None:
        self.s3.put_object(Bucket=self.bucket_name, Key=key, Body=body)

    def queued(self) -> tuple[int, int]:
        """Messages waiting, and messages hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


@pytest.fixture
def make_s3_lake(moto: Moto, make_lake: Callable[..., Lake]) -> Iterator[Callable[..., S3Lake]]:
    clients: list[Any] = []

    def make(prefix: str = "", path: str = "", **intake: Any) -> S3Lake:
        name = f"lake-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        s3, sqs = (boto3.client(kind, endpoint_url=moto.endpoint, region_name=REGION) for kind in ("s3", "sqs"))
        clients.extend((s3, sqs))
        url = create_bucket_with_queue(s3, sqs, name, prefix)
        store = StoreSettings(
            url=f"s3://{name}{path}", endpoint=moto.endpoint, region=REGION, allow_http=True, timeout_s=5
        )
        lake = make_lake(store, sqs_url=url, sqs_endpoint=moto.endpoint, **intake)
        return S3Lake(lake, name, url, s3, sqs)

    yield make
    for client in clients:
        client.close()


def write(root: Path, key: str, body: bytes = b"x") -> Path:
    """Write a file like a collector: under a temporary name, then rename it."""
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(body)
    return part.rename(path)
