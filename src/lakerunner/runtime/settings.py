"""The settings: one table that feeds the YAML file, the environment, `--help` and docs/configuration.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=0, le=65_535)]
Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

EMBEDDED = "embedded"


class Section(BaseModel):
    """A group of settings. Every field has a default and a sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSettings(Section):
    """Where this machine keeps what is its own."""

    dir: Path = Field(
        Path("lakerunner-data"), description="Folder of the embedded database, bucket and caches of this machine."
    )


class IndexSettings(Section):
    """lrdb, the index in PostgreSQL."""

    url: str = Field(
        EMBEDDED,
        description="postgresql:// address of lrdb, or `embedded` for one that `lakerunner serve` runs itself.",
        json_schema_extra={"secret": True},
    )
    pool_size: Count = Field(8, description="Connections that one process may hold.")
    connect_timeout_s: Seconds = Field(5.0, description="How long to wait for a connection.")
    statement_timeout_s: Seconds = Field(30.0, description="How long one statement may run.")


class BusSettings(Section):
    """Names of things to do, on their way between stages."""

    kind: Literal["postgres", "kafka"] = Field("postgres", description="What carries messages.")
    brokers: str = Field("", description="Kafka's bootstrap servers, as host:port,host:port.")
    kafka_options: str = Field(
        "",
        description="Further settings of librdkafka, for TLS and SASL, as name=value between blanks.",
        json_schema_extra={"secret": True},
    )
    prefix: str = Field("lakerunner.", description="What every topic's name begins with.", pattern=r"^[a-zA-Z0-9._-]*$")
    partitions: Annotated[int, Field(ge=1, le=1_024)] = Field(
        16, description="Partitions of a topic, when it is made: the most consumers that can share one."
    )
    replication: Count = Field(1, description="Replicas of a Kafka topic, when it is made.")
    session_timeout_s: Annotated[float, Field(ge=1)] = Field(
        10.0, description="How long a consumer may be silent before others take over its partitions."
    )
    max_attempts: Count = Field(
        15, description="Attempts at a message before it goes to the dead letters: minutes of patience with an outage."
    )
    retry_base_s: Seconds = Field(0.5, description="Wait before the second attempt; it doubles with every further one.")
    retry_max_s: Seconds = Field(30.0, description="The longest wait between two attempts.")
    retention_s: Seconds = Field(
        259_200.0, description="How long messages that every group has passed are kept (PostgreSQL), or all (Kafka)."
    )


class StoreSettings(Section):
    """The bucket."""

    url: str = Field(
        "", description="file://, s3://, gs:// or az:// address of the bucket; empty means a folder under data.dir."
    )
    region: str = Field("", description="Region of the bucket, where its provider needs one.")
    endpoint: str = Field("", description="Address of an S3- or Azure-compatible service that is not the provider's.")
    allow_http: bool = Field(False, description="Whether an endpoint without TLS may be used.")
    timeout_s: Seconds = Field(30.0, description="How long one request may take.")
    max_attempts: Count = Field(6, description="Attempts at a request before its error is passed on.")
    circuit_failures: Count = Field(5, description="Failed requests in a row after which calls pause.")
    circuit_pause_s: Seconds = Field(5.0, description="How long they pause before one is let through to try.")


class IntakeSettings(Section):
    """How raw objects are noticed. Several ways may be on at once: an object is recorded once all the same."""

    sqs_url: str = Field("", description="Address of an SQS queue that gets S3 events; empty means none.")
    sqs_region: str = Field("", description="Region of that queue; empty means store.region.")
    sqs_endpoint: str = Field("", description="Address of an SQS-compatible service that is not the provider's.")
    pubsub_subscription: str = Field(
        "", description="Pub/Sub subscription of GCS events, as projects/PROJECT/subscriptions/NAME; empty means none."
    )
    azure_queue: str = Field(
        "",
        description="Azure storage queue that gets Event Grid events: its name, or its https:// address; empty means "
        "none.",
    )
    webhook: bool = Field(True, description="Whether events may be posted to /api/v1/intake/s3.")
    webhook_max_bytes: Count = Field(1_048_576, description="The largest body that the webhook reads.")
    folder: bool = Field(True, description="Whether buckets that are folders are watched.")
    folder_poll_s: Seconds = Field(1.0, description="How often a folder is looked at.")
    folder_settle_s: Annotated[float, Field(ge=0)] = Field(
        0.5, description="How long a file must stay unchanged before it counts as written."
    )
    folder_full_scan_s: Seconds = Field(
        60.0, description="How often every file is looked at again: finds files overwritten in place."
    )
    reconcile_interval_s: Annotated[float, Field(ge=0)] = Field(
        900.0, description="How often buckets are listed for objects whose events were lost; 0 means never."
    )
    default_org: Literal["folder", "always", "never"] = Field(
        "folder",
        description="Whether raw objects that no profile claims belong to the default org: in buckets that are "
        "folders, in the bucket of store.url whatever it is, or never.",
    )
    batch: Count = Field(500, description="Events that one transaction records at most.")
    head_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="Requests to the bucket about announced objects that run at once."
    )
    visibility_s: Annotated[int, Field(ge=1, le=43_200)] = Field(
        120, description="How long a queue hides an event from others while it is being recorded."
    )


class HttpSettings(Section):
    """Where roles listen."""

    host: str = Field("127.0.0.1", description="Address that roles bind.")
    port: Port = Field(
        7100,
        description="Port of a role run alone; under `serve` the API has this one and the roles those after it. "
        "0 lets the system choose.",
    )


class LogSettings(Section):
    """Structured logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least level that is written.")
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="json lines, coloured text, or whichever fits where they go."
    )


class TelemetrySettings(Section):
    """What Lakerunner tells of itself."""

    otlp_endpoint: str = Field("", description="OTLP/HTTP address that gets our spans; empty means none are made.")


class ServeSettings(Section):
    """The supervisor of `lakerunner serve`."""

    ready_timeout_s: Seconds = Field(60.0, description="How long a role may take to become ready before serve says so.")
    stop_timeout_s: Seconds = Field(20.0, description="How long all roles together may take to stop.")
    restart_base_s: Seconds = Field(0.5, description="Wait before a crashed role is started again; it doubles.")
    restart_max_s: Seconds = Field(30.0, description="The longest such wait; a minute of health resets it.")


class UpkeepSettings(Section):
    """Housekeeping of the index."""

    interval_s: Seconds = Field(60.0, description="How often the index is tidied.")
    outbox_keep_s: Seconds = Field(86_400.0, description="How long published outbox rows are kept.")
    work_keep_s: Seconds = Field(604_800.0, description="How long finished work items are kept.")


class SparkSettings(Section):
    """The Spark session of ingest, compact and rollup."""

    master: str = Field("local[*]", description="Spark's master: local[*], spark://, yarn or k8s://.")
    memory: str = Field(
        "1g",
        description="Heap of the driver's Java. Telemetry is held by Python, not there.",
        pattern=r"^[0-9]+[kmgKMG]$",
    )
    options: str = Field("", description="Further settings of Spark, as spark.name=value between blanks.")


class PipelineSettings(Section):
    """Boxers and the stages that they feed."""

    bundle_bytes: Count = Field(
        134_217_728, description="Telemetry, uncompressed, after which a boxer closes a bundle of raw objects."
    )
    bundle_objects: Annotated[int, Field(ge=1, le=2_000)] = Field(1_000, description="Raw objects after which it does.")
    bundle_idle_s: Seconds = Field(2.0, description="Age at which a bundle is closed while ingest has nothing to do.")
    bundle_age_s: Seconds = Field(15.0, description="Age at which a bundle is closed in any case.")
    expansion: Annotated[float, Field(ge=1)] = Field(
        8.0, description="How much larger than in the bucket a compressed raw object is assumed to be."
    )
    jobs: Count = Field(2, description="Spark jobs that one worker keeps under way.")
    batch_items: Count = Field(16, description="Work items that one Spark job takes at most.")
    task_bytes: Count = Field(
        67_108_864, description="Telemetry, uncompressed, that one task holds; an item above it is shared by several."
    )
    fetches: Count = Field(8, description="Raw objects that one task fetches at the same time.")
    reconcile_after_s: Seconds = Field(
        300.0, description="After how long an object or work item that nobody ended is announced again."
    )


class QuerySettings(Section):
    """Answering: plans, workers and what a query may cost."""

    workers: str = Field(
        "",
        description="Query workers, as host:port,host:port, or dns://name:port for all addresses of a name; empty "
        "means the one of this data.dir where it runs, else the asking process itself.",
    )
    worker_host: str = Field("127.0.0.1", description="Address that a query worker binds.")
    worker_port: Port = Field(0, description="Port of a query worker's Arrow Flight; 0 lets the system choose.")
    worker_token: str = Field(
        "",
        description="Secret shared by the API and its workers; empty means one kept in data.dir, for a single machine.",
        json_schema_extra={"secret": True},
    )
    worker_tls_cert: str = Field(
        "",
        description="PEM file of this process's certificate, which the API and its workers show each other; empty "
        "means that it shows none.",
    )
    worker_tls_key: str = Field("", description="PEM file of that certificate's key.")
    worker_tls_ca: str = Field(
        "",
        description="PEM file of the authority whose certificates are trusted; a worker that has one refuses clients "
        "without a certificate of it.",
    )
    worker_tls_name: str = Field(
        "", description="Name in workers' certificates, where it is not the address that they are reached at."
    )
    worker_memory_bytes: Count = Field(
        4_294_967_296,
        description="Memory, mapped files apart, above which a worker lets its caches go and, if that does not help, "
        "finishes what it has and is started anew.",
    )
    worker_memory_patience_s: Seconds = Field(10.0, description="How long it must stay above that for the latter.")
    worker_max_memory_bytes: Count = Field(
        8_589_934_592, description="Memory above which a worker stops the query that holds the most."
    )
    worker_drain_s: Seconds = Field(
        10.0, description="How long a worker that ends, or is started anew, goes on with what it has."
    )
    worker_patience_s: Seconds = Field(
        15.0, description="How long queries wait for a worker that is being started anew, when no other can do."
    )
    cache_dir: str = Field("", description="Folder under which processes keep fetched segments; empty means data.dir.")
    cache_bytes: Count = Field(10_737_418_240, description="What one process may keep there.")
    table_cache_bytes: Count = Field(536_870_912, description="Memory for decoded tables of series.")
    decoded_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        1_073_741_824, description="Memory for decoded samples that are read again and again; 0 means none."
    )
    fetches: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="Segments that a worker fetches and reads at once."
    )
    worker_scans: Count = Field(8, description="Requests that a worker answers at once; others wait.")
    max_scan_bytes: Count = Field(
        2_147_483_648, description="Samples, as bytes, that one query may make a worker hold."
    )
    attempts: Count = Field(3, description="Workers that a segment is tried on before it counts as failed.")
    timeout_s: Seconds = Field(120.0, description="How long a query may take.")
    index_patience_s: Seconds = Field(
        300.0, description="How long queries go on from segments known before while the index does not answer."
    )


class FormatsSettings(Section):
    """How raw objects are read, and what one of them may cost."""

    compressed_bytes: Count = Field(268_435_456, description="The largest object, as it lies in the bucket.")
    expanded_bytes: Annotated[int, Field(ge=1, le=2_000_000_000)] = Field(
        1_073_741_824, description="The largest object after decompression."
    )
    ratio: Count = Field(500, description="How many times larger an object may become by decompression.")
    line_bytes: Count = Field(8_388_608, description="The longest line of JSON or CSV; a longer one is counted as bad.")
    nesting_depth: Annotated[int, Field(ge=1, le=512)] = Field(
        64, description="Arrays and objects within each other; a deeper object is refused."
    )
    attributes_per_row: Count = Field(1_024, description="Attributes of one row; later ones are dropped and counted.")
    value_bytes: Count = Field(1_048_576, description="One attribute or message; a longer one is cut and counted.")
    promote_resource: str = Field(
        "",
        description="Resource attributes that become labels of every metric series, between commas, as "
        "k8s.cluster.name,deployment.environment.",
    )


class DemoSettings(Section):
    """The small shop of `serve --demo`."""

    rate: Annotated[float, Field(ge=1)] = Field(
        200.0, description="Log records a second, as the day's mean; spans and metrics in proportion."
    )
    seed: int = Field(0, description="The same seed tells of the same shop.")


class AuthSettings(Section):
    """Who may ask."""

    required: bool = Field(
        True, description="Whether the API wants a key; off is for a machine of your own, bound to loopback."
    )


class LimitSettings(Section):
    """What one org may ask of the query API. An org may have limits of its own: `lakerunner org limits`."""

    timeout_s: Seconds = Field(60.0, description="How long a query may take, its wait included.")
    max_range_s: Seconds = Field(
        31_622_400.0, description="How much time a query may span, from the first sample that it reads to the last."
    )
    max_steps: Count = Field(11_000, description="Steps of one range query.")
    max_series: Count = Field(200_000, description="Series in any part of a query.")
    max_samples: Count = Field(50_000_000, description="Samples that a query may read and compute.")
    max_bytes: Count = Field(4_294_967_296, description="Bytes of segments that a query may read.")
    max_points: Count = Field(
        10_000_000, description="Samples of one answer: each takes some 25 bytes of memory and of the network."
    )
    org_queries: Count = Field(4, description="Queries of one org that run at once.")


class ApiSettings(LimitSettings):
    """The query API: what one org may ask of it, and how it shares itself between orgs."""

    url: str = Field(
        "", description="Address of the API that `lakerunner query` asks; empty means the one of this machine."
    )
    key: str = Field("", description="API key that `lakerunner query` sends.", json_schema_extra={"secret": True})
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        8, description="Queries that run at once; others wait in turn."
    )
    slow_lane: bool = Field(
        True,
        description="Whether long queries, and all of an org that asks very much, run in a process that gives way to "
        "the others.",
    )
    slow_lane_bytes: Count = Field(
        4_294_967_296, description="Memory at which that process is ended and started anew; its queries are lost."
    )
    org_waiting: Count = Field(100, description="Queries of one org that may wait; further ones are refused.")
    lookback_s: Seconds = Field(300.0, description="How far back a selector looks for the latest sample.")
    metadata_range_s: Seconds = Field(
        86_400.0, description="How far back labels and series are looked for when a request gives no start."
    )
    cache_bytes: Annotated[int, Field(ge=0)] = Field(
        134_217_728, description="Memory for answers that may be given again; 0 means none are kept."
    )
    cache_ttl_s: Seconds = Field(3_600.0, description="How long an answer is kept at most.")
    heartbeat_s: Seconds = Field(5.0, description="Silence on a stream after which a heartbeat is sent.")


class Settings(Section):
    """Everything that can be set."""

    data: DataSettings = Field(default_factory=DataSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    bus: BusSettings = Field(default_factory=BusSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    intake: IntakeSettings = Field(default_factory=IntakeSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    serve: ServeSettings = Field(default_factory=ServeSettings)
    upkeep: UpkeepSettings = Field(default_factory=UpkeepSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    query: QuerySettings = Field(default_factory=QuerySettings)
    formats: FormatsSettings = Field(default_factory=FormatsSettings)
    demo: DemoSettings = Field(default_factory=DemoSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)

    @property
    def store_url(self) -> str:
        """The bucket's address, with the embedded default filled in."""
        return self.store.url or (self.data.dir.resolve() / "bucket").as_uri()
