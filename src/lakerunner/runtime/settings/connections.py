"""What the other settings stand on: files of this machine, the index, the bus and the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Seconds, Section

EMBEDDED = "embedded"


class DataSettings(Section):
    """Local files of this machine."""

    dir: Path = Field(
        Path("lakerunner-data"), description="Folder for the embedded database, the default bucket and caches."
    )


class IndexSettings(Section):
    """lrdb, the index in PostgreSQL."""

    url: str = Field(
        EMBEDDED,
        description="postgresql:// address of lrdb, or `embedded` for the server that `lakerunner serve` runs itself.",
        json_schema_extra={"secret": True},
    )
    pool_size: Count = Field(8, description="Maximum number of connections per process.")
    connect_timeout_s: Seconds = Field(5.0, description="How long to wait for a connection.")
    statement_timeout_s: Seconds = Field(30.0, description="How long one statement may run.")


class BusSettings(Section):
    """The message bus between stages."""

    kind: Literal["postgres", "kafka"] = Field(
        "postgres", description="Where messages are stored: in PostgreSQL or in Kafka."
    )
    brokers: str = Field("", description="Kafka bootstrap servers, as host:port,host:port.")
    kafka_options: str = Field(
        "",
        description="More librdkafka settings, such as TLS and SASL, as name=value separated by spaces.",
        json_schema_extra={"secret": True},
    )
    prefix: str = Field("lakerunner.", description="Prefix of every topic name.", pattern=r"^[a-zA-Z0-9._-]*$")
    partitions: Annotated[int, Field(ge=1, le=1_024)] = Field(
        16, description="Partitions of a new topic, which is the maximum number of consumers that can share it."
    )
    replication: Count = Field(1, description="Replicas of a new Kafka topic.")
    session_timeout_s: Annotated[float, Field(ge=1)] = Field(
        10.0,
        description="How long a process may be silent before others take over its partitions and its leadership, and "
        "PostgreSQL ends its transactions. Killed processes are noticed sooner.",
    )
    max_attempts: Count = Field(
        15,
        description="Attempts at a message before it becomes a dead letter. The default outlasts minutes of outage.",
    )
    retry_base_s: Seconds = Field(
        0.5, description="Wait before the second attempt; it doubles with each further attempt."
    )
    retry_max_s: Seconds = Field(30.0, description="Longest wait between two attempts.")
    retention_s: Seconds = Field(
        259_200.0,
        description="How long messages are kept: in PostgreSQL, those that every group has read or that no group "
        "reads; in Kafka, all.",
    )
    unread_retention_s: Seconds = Field(
        1_209_600.0,
        description="How long PostgreSQL keeps a message that a group has not read. The sweeper announces again what "
        "was never finished, so nothing is lost.",
    )
    dead_retention_s: Seconds = Field(2_592_000.0, description="How long dead letters are kept.")


class StoreSettings(Section):
    """The bucket for segments and raw objects."""

    url: str = Field(
        "", description="file://, s3://, gs:// or az:// address of the bucket; empty means a folder under data.dir."
    )
    region: str = Field("", description="Region of the bucket, if its provider needs one.")
    endpoint: str = Field(
        "", description="Address of an S3- or Azure-compatible service other than the provider's own."
    )
    allow_http: bool = Field(False, description="Whether the endpoint may be plain HTTP without TLS.")
    timeout_s: Seconds = Field(30.0, description="How long one request may take.")
    max_attempts: Count = Field(6, description="Attempts at a request before it fails.")
    circuit_failures: Count = Field(5, description="Failed requests in a row after which requests are paused.")
    circuit_pause_s: Seconds = Field(5.0, description="How long requests are paused before one is tried again.")
