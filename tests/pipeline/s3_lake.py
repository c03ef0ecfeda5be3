"""A lake whose bucket is at S3 (moto), directly or through a proxy that fails."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from lakerunner.index.orgs import create_org
from lakerunner.runtime.settings import BusSettings, IntakeSettings, Settings, StoreSettings
from tests.components.moto import CREDENTIALS, REGION, Moto, create_bucket_with_queue
from tests.pipeline.lake import ORG, Lake, runner_on, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def s3_settings(url: str, folder: Path, moto: Moto, endpoint: str = "") -> Settings:
    """A new bucket with a queue of its events. Patience with the store and with the bus is what users have."""
    name = f"lake-{uuid.uuid4().hex[:8]}"
    options = {
        "endpoint_url": moto.endpoint,
        "region_name": REGION,
        "aws_access_key_id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }
    s3, sqs = boto3.client("s3", **options), boto3.client("sqs", **options)
    queue_url = create_bucket_with_queue(s3, sqs, name)
    s3.close()
    sqs.close()
    endpoint = endpoint or moto.endpoint
    changed = {
        "store": StoreSettings(url=f"s3://{name}", endpoint=endpoint, region=REGION, allow_http=True),
        "bus": BusSettings(partitions=2, session_timeout_s=1.0),
        "intake": IntakeSettings(
            sqs_url=queue_url, sqs_endpoint=moto.endpoint, sqs_region=REGION, folder=False, default_org="never"
        ),
    }
    return settings_of(url, folder, bundle_objects=4).model_copy(update=changed)


class S3Lake:
    """The lake and the ingest runner over it, with the suite's Spark session."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        self.lake = Lake(settings)
        with self.lake.database.transaction() as tx:
            create_org(tx, "acme", ORG)
        self.runner = runner_on(spark, self.lake)

    def close(self) -> None:
        self.lake.close()
