"""All settings: the source for the YAML file, the environment, `--help` and docs/configuration.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=0, le=65_535)]
Seconds = Annotated[float, Field(gt=0)]
Keep = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, lt=1)]

EMBEDDED = "embedded"


class Section(BaseModel):
    """A group of settings. Every field has a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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


class IntakeSettings(Section):
    """How new raw objects are discovered. Several ways may be enabled; each object is still recorded only once."""

    sqs_url: str = Field("", description="Address of an SQS queue that receives S3 events; empty means none.")
    sqs_region: str = Field("", description="Region of that queue; empty means store.region.")
    sqs_endpoint: str = Field("", description="Address of an SQS-compatible service other than AWS.")
    pubsub_subscription: str = Field(
        "", description="Pub/Sub subscription to GCS events, as projects/PROJECT/subscriptions/NAME; empty means none."
    )
    azure_queue: str = Field(
        "",
        description="Azure storage queue that receives Event Grid events: its name or its https:// address; empty "
        "means none.",
    )
    webhook: bool = Field(True, description="Whether S3 events may be posted to /api/v1/intake/s3.")
    webhook_max_bytes: Count = Field(1_048_576, description="Largest request body that the webhook accepts.")
    folder: bool = Field(True, description="Whether file:// buckets are watched for new files.")
    folder_poll_s: Seconds = Field(1.0, description="How often watched folders are scanned.")
    folder_settle_s: Annotated[float, Field(ge=0)] = Field(
        0.5, description="How long a file must stay unchanged before it counts as complete."
    )
    folder_full_scan_s: Seconds = Field(
        60.0, description="How often every file is checked again, to find files that were overwritten in place."
    )
    reconcile_interval_s: Annotated[float, Field(ge=0)] = Field(
        900.0, description="How often buckets are listed to find objects whose events were lost; 0 means never."
    )
    default_org: Literal["folder", "always", "never"] = Field(
        "folder",
        description="When raw objects without a matching profile belong to the default org: only in a file:// "
        "bucket (folder), in any bucket at store.url (always), or never.",
    )
    batch: Count = Field(500, description="Maximum number of events recorded in one transaction.")
    head_threads: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="Concurrent HEAD requests for announced objects."
    )
    visibility_s: Annotated[int, Field(ge=1, le=43_200)] = Field(
        120, description="How long a queue hides an event from other consumers while it is being recorded."
    )


class HttpSettings(Section):
    """The HTTP port of each role."""

    host: str = Field("127.0.0.1", description="Address that roles bind.")
    port: Port = Field(
        7100,
        description="Port of a role that runs alone. Under `serve`, the API uses this port and the other roles use "
        "the ports after it. 0 lets the system choose.",
    )
    drain_s: Annotated[float, Field(ge=0, le=600)] = Field(
        3.0,
        description="How long a role that clients call keeps listening after SIGTERM, while it says that "
        "it is not ready, so that load balancers send nothing more. Under `serve` it is 0 unless it is set.",
    )


class LogSettings(Section):
    """Structured logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is written.")
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="JSON lines, coloured text, or auto: text on a terminal and JSON otherwise."
    )


class TelemetrySettings(Section):
    """Lakerunner's own traces."""

    otlp_endpoint: str = Field(
        "", description="OTLP/HTTP address that receives Lakerunner's own spans; empty means none."
    )


class ServeSettings(Section):
    """The supervisor of `lakerunner serve`."""

    ready_timeout_s: Seconds = Field(
        60.0, description="How long a role may take to become ready before serve reports it."
    )
    stop_timeout_s: Seconds = Field(20.0, description="How long all roles together may take to stop.")
    restart_base_s: Seconds = Field(
        0.5, description="Time between two starts of a role that crashes; it doubles with each crash."
    )
    restart_max_s: Seconds = Field(
        30.0,
        description="Longest time between two starts of a role that crashes. One that ran longer restarts at once.",
    )


class UpkeepSettings(Section):
    """Periodic clean-up of the index. What still waits or is in work is never deleted, whatever its age."""

    interval_s: Seconds = Field(60.0, description="How often the index is cleaned up.")
    outbox_keep_s: Seconds = Field(86_400.0, description="How long published outbox rows are kept.")
    work_keep_s: Seconds = Field(604_800.0, description="How long finished work items are kept.")
    raw_object_keep_s: Seconds = Field(
        7_776_000.0,
        description="How long the ledger remembers an ingested raw object. An unknown object that arrived before what "
        "its org's ledger has forgotten is not ingested, because it may have been already.",
    )
    quarantine_keep_s: Seconds = Field(
        31_536_000.0, description="How long the ledger remembers a raw object in quarantine; after that no retry."
    )
    rejected_keep_s: Seconds = Field(
        7_776_000.0, description="How long rejected events are kept that did not come again."
    )
    rejected_keep_rows: Count = Field(10_000, description="Maximum number of rejected events kept per kind.")
    query_log_keep_s: Seconds = Field(1_209_600.0, description="How long the query log is kept.")


class DeriveSettings(Section):
    """Metrics that are derived from rows while they are ingested."""

    span_metrics: bool = Field(False, description="Derive calls and latency of operations from spans.")
    dimensions: str = Field(
        "",
        description="Attributes that are labels of span metrics too, with commas between them, "
        "for example `http.method,resource.k8s.cluster.name`.",
    )
    service_graph: bool = Field(False, description="Derive requests between services from spans.")
    pair_wait_s: Seconds = Field(
        3_600.0, description="How long one side of a call waits for the other, if they come with different objects."
    )
    backfill_tasks: int = Field(2, ge=1, description="Tasks of the cluster that backfill of rules may take at a time.")
    remake_wait_s: Seconds = Field(
        60.0,
        description="Pause before derived metrics are made again whose rows were deleted on request: after the hour is "
        "over and its rows are gone, and after a try that failed.",
    )
    max_rules: int = Field(1_000, ge=0, description="Materialization rules that an org may have.")
    rule_us_per_row: float = Field(
        20.0,
        gt=0,
        description="Microseconds of CPU that all rules of an org together may take per row of a task. Ingest without "
        "rules takes about 6. What is beyond it is cut off and becomes a hole of those rules; ingest goes on.",
    )
    rule_least_s: Seconds = Field(2.0, description="CPU time that the rules of an org may take in any task.")
    peer_attributes: str = Field(
        "peer.service,server.address",
        description="Attributes of a client span that name the service it called, the first that it has. If that "
        "service sends no spans, the call is an edge to this name. Empty leaves such calls out.",
    )
    peer_wait_s: Seconds = Field(
        120.0, description="How long a client that names the service it called waits for the spans of that service."
    )
    slot_keep_s: Seconds = Field(
        2_678_400.0, description="How long the index remembers the times of derived samples, to keep them apart."
    )


class RetentionSettings(Section):
    """How long telemetry is kept, by event time. 0 keeps it for ever. `lakerunner org retention` differs for an org."""

    logs_s: Keep = Field(0.0, description="How long log records are kept; 0 means for ever.")
    traces_s: Keep = Field(0.0, description="How long spans are kept; 0 means for ever.")
    metrics_s: Keep = Field(0.0, description="How long metric samples are kept as they were sent; 0 means for ever.")
    metrics_10s_s: Keep = Field(0.0, description="How long rollups of 10 seconds are kept; 0 means for ever.")
    metrics_1m_s: Keep = Field(0.0, description="How long rollups of a minute are kept; 0 means for ever.")
    metrics_5m_s: Keep = Field(0.0, description="How long rollups of 5 minutes are kept; 0 means for ever.")
    metrics_1h_s: Keep = Field(0.0, description="How long rollups of an hour are kept; 0 means for ever.")
    metrics_1d_s: Keep = Field(0.0, description="How long rollups of a day are kept; 0 means for ever.")


class SweepSettings(Section):
    """The sweeper: which objects are deleted from the bucket, when, and how fast."""

    grace_s: Seconds = Field(
        3_600.0,
        description="How long the objects of a superseded or expired segment stay in the bucket. A query that takes "
        "longer than this is refused, because it may need them.",
    )
    orphan_grace_s: Seconds = Field(
        86_400.0,
        description="Age at which an object under db/ that the index does not know is deleted. It must exceed the "
        "longest attempt at a work item.",
    )
    listing_interval_s: Seconds = Field(
        86_400.0, description="How often the bucket is listed and compared with the index."
    )
    deletes_per_s: Annotated[float, Field(gt=0)] = Field(
        200.0, description="Maximum number of objects that the sweeper deletes per second."
    )
    round_objects: Count = Field(
        20_000, description="Maximum number of objects that one round deletes; the next round goes on."
    )
    ledger_keep_s: Seconds = Field(7_776_000.0, description="How long the ledger of what was deleted is kept.")


class MonitorSettings(Section):
    """The monitor: objectives, and where alerts are sent."""

    interval_s: Seconds = Field(5.0, description="How often the state of the deployment is read.")
    freshness_target_s: Seconds = Field(
        60.0, description="How soon a raw object should be visible to queries after it was noticed."
    )
    freshness_share: Share = Field(0.99, description="Share of raw objects that must be visible by then.")
    query_target_s: Seconds = Field(
        5.0, description="How long a query should take at most, including its wait; the API rounds it to its buckets."
    )
    query_share: Share = Field(0.99, description="Share of queries that must be answered by then.")
    stuck_s: Seconds = Field(
        900.0, description="Age at which an open work item or a waiting raw object counts as stuck."
    )
    tier_lag_s: Seconds = Field(14_400.0, description="How far a rollup tier may lag behind before an alert.")
    bucket_slow_s: Seconds = Field(2.0, description="Time of a small request at which the bucket counts as slow.")
    deployment: str = Field("lakerunner", description="Name of this deployment, as a label of every alert.")
    webhooks: str = Field(
        "",
        description="Addresses to which alerts are posted as JSON, separated by commas.",
        json_schema_extra={"secret": True},
    )
    alertmanagers: str = Field(
        "", description="Addresses of Alertmanagers, separated by commas; alerts go to /api/v2/alerts of each."
    )
    repeat_s: Seconds = Field(
        14_400.0, description="How often an alert is sent again to a webhook while it is still firing."
    )


class RulerSettings(Section):
    """The ruler, which evaluates recording and alerting rules and sends alerts."""

    interval_s: Annotated[float, Field(ge=1)] = Field(
        60.0, description="How often a group is evaluated that sets no interval."
    )
    least_interval_s: Annotated[float, Field(ge=0.1)] = Field(5.0, description="The shortest interval of a group.")
    arrival_s: Annotated[float, Field(ge=0)] = Field(
        10.0,
        description="How long telemetry takes from its event to the bucket. A group is evaluated at a time that is "
        "this long ago, or longer while raw objects wait.",
    )
    max_wait_s: Seconds = Field(
        60.0, description="How long an evaluation waits at most for raw objects that arrived and cannot be queried yet."
    )
    catch_up: Annotated[int, Field(ge=0, le=1_000)] = Field(
        10, description="Missed evaluations of a group that are made up for; older ones are counted."
    )
    continuous: Literal["derived", "all", "off"] = Field(
        "derived",
        description="Evaluate a group as soon as a metric that one of its alerts reads has new samples: metrics "
        "derived from logs and spans, all, or none.",
    )
    continuous_gap_s: Annotated[float, Field(ge=1)] = Field(
        5.0, description="Least time between two such evaluations of a group."
    )
    timeout_s: Seconds = Field(30.0, description="How long the evaluation of a group may take.")
    threads: Annotated[int, Field(ge=1, le=64)] = Field(2, description="Groups that are evaluated at once.")
    org_threads: Annotated[int, Field(ge=1, le=64)] = Field(1, description="Groups of one org among them.")
    max_groups: Annotated[int, Field(ge=1)] = Field(1_000, description="Groups that an org may store.")
    max_rules: Annotated[int, Field(ge=1)] = Field(1_000, description="Rules that a group may have.")
    max_results: Annotated[int, Field(ge=1)] = Field(
        10_000, description="Series or alerts that one rule may make, where its group sets no lower limit."
    )
    org_results: Annotated[int, Field(ge=1)] = Field(
        500_000,
        description="Series and alerts that all rules of an org together may have in one ruler, at about a kilobyte "
        "each. A rule that would exceed it fails.",
    )
    org_label: str = Field(
        "org", description="Label with the name of the org on every alert that is sent; empty: no such label."
    )
    external_url: str = Field("", description="Address of this deployment, for templates and links in alerts.")
    alertmanagers: str = Field(
        "", description="Addresses of Alertmanagers, separated by commas; alerts go to /api/v2/alerts of each."
    )
    webhooks: str = Field(
        "",
        description="Addresses to which alerts are posted as JSON, separated by commas.",
        json_schema_extra={"secret": True},
    )
    resend_s: Seconds = Field(60.0, description="How often an alert is sent again to an Alertmanager.")
    repeat_s: Seconds = Field(14_400.0, description="How often an alert is sent again to a webhook while it fires.")
    batch: Annotated[int, Field(ge=1, le=10_000)] = Field(256, description="Alerts in one request to a receiver.")
    ca_file: str = Field("", description="Certificates of authorities that receivers are checked with.")
    cert_file: str = Field("", description="Certificate that the ruler shows to receivers.")
    key_file: str = Field("", description="Key of that certificate.")
    bearer_file: str = Field("", description="File with the token that is sent to receivers.")
    basic_user: str = Field("", description="User for basic authentication at receivers.")
    basic_password_file: str = Field("", description="File with the password of that user.")


class CanarySettings(Section):
    """The canary, which writes known rows and checks them through the query API."""

    enabled: bool = Field(False, description="Whether `lakerunner serve` runs the canary.")
    org: str = Field("canary", description="Org that owns the canary's rows. It is created if it is missing.")
    interval_s: Annotated[float, Field(ge=1)] = Field(60.0, description="How often known rows are written.")
    rows: Annotated[int, Field(ge=1, le=1_000)] = Field(10, description="Rows of each signal in a round.")
    timeout_s: Seconds = Field(300.0, description="Age at which rows that cannot be queried count as late.")
    keep_s: Seconds = Field(
        86_400.0, description="How long a round is looked at again, to find rows that a later stage lost or doubled."
    )


class DeleteSettings(Section):
    """Deletion of rows on request."""

    wait_s: Keep = Field(
        300.0,
        description="How long a deletion waits before segments are rewritten. Its rows are hidden at once; until then "
        "it can be cancelled.",
    )


class SparkSettings(Section):
    """The Spark session of ingest, compact and rollup."""

    master: str = Field("local[*]", description="Spark master: local[*], spark://, yarn or k8s://.")
    memory: str = Field(
        "1g",
        description="Java heap of the Spark driver. It can be small, because Python processes hold the telemetry.",
        pattern=r"^[0-9]+[kmgKMG]$",
    )
    max_cores: Count = Field(
        4, description="Cores of a cluster that one worker process may take. Executors that are idle are given back."
    )
    executor_cores: Count = Field(1, description="Cores, and so concurrent tasks, of an executor on a cluster.")
    executor_memory: str = Field(
        "512m", description="Java heap of an executor on a cluster.", pattern=r"^[0-9]+[kmgKMG]$"
    )
    python_memory: str = Field(
        "2g",
        description="Memory of the Python processes of an executor, beside its heap: what YARN and Kubernetes grant "
        "in addition. They hold the telemetry of its tasks.",
        pattern=r"^[0-9]+[kmgKMG]$",
    )
    package: str = Field(
        "",
        description="Archive that `lakerunner spark package` made, as a path or an address that executors can read. "
        "Empty means that lakerunner is installed where executors run, at the same place as here.",
    )
    pass_env: str = Field(
        "AWS_* AZURE_STORAGE_* GOOGLE_APPLICATION_CREDENTIALS",
        description="Environment variables of this process that executors get too, as names or PREFIX*, separated by "
        "spaces: how they reach the bucket. Empty if they have an identity of their own.",
    )
    start_s: Seconds = Field(120.0, description="How long a new session may take until its first executor is there.")
    lost_s: Seconds = Field(
        30.0, description="How long a job may be without any executor before the session counts as lost."
    )
    stall_s: Seconds = Field(
        1_800.0, description="How long a job may go on without one of its tasks ending before it is cancelled."
    )
    options: str = Field(
        "",
        description="More Spark settings, as spark.name=value separated by spaces. They win over ours, and are on no "
        "command line.",
        json_schema_extra={"secret": True},
    )


class PipelineSettings(Section):
    """Boxers, which bundle raw objects into work items, and the stages that process these."""

    bundle_bytes: Count = Field(
        134_217_728, description="Uncompressed bytes of telemetry at which a boxer closes a bundle of raw objects."
    )
    bundle_objects: Annotated[int, Field(ge=1, le=2_000)] = Field(
        1_000, description="Number of raw objects at which a boxer closes a bundle."
    )
    bundle_idle_s: Seconds = Field(2.0, description="Age at which a boxer closes a bundle while ingest is idle.")
    bundle_age_s: Seconds = Field(
        15.0, description="Age of the oldest raw object at which a boxer closes its bundle in any case."
    )
    expansion: Annotated[float, Field(ge=1)] = Field(
        8.0, description="Assumed ratio of the uncompressed to the compressed size of a raw object."
    )
    jobs: Count = Field(2, description="Concurrent Spark jobs per worker.")
    finish_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        15.0,
        description="How long batches under way may take to finish after a worker received SIGTERM. Then they are "
        "abandoned, and another worker does them.",
    )
    batch_items: Count = Field(16, description="Maximum number of work items per Spark job.")
    task_bytes: Count = Field(
        67_108_864, description="Uncompressed bytes of telemetry per task. A larger work item is split among tasks."
    )
    fetches: Count = Field(8, description="Raw objects that one task fetches concurrently.")
    rollup_pause_s: Seconds = Field(
        30.0,
        description="How long a boxer waits for more changes of a window that is over before it is rolled up (again).",
    )
    rollup_piece_rows: Count = Field(
        524_288, description="Samples that a rollup task holds in memory at a time, about; each takes 200 bytes."
    )
    rollup_segment_rows: Count = Field(
        1_048_576, description="Rows at which a segment of a tier is full, and up to which windows of a day share it."
    )
    reconcile_after_s: Seconds = Field(
        300.0, description="Age at which an unfinished raw object or work item is announced again."
    )
    compact_segments: Annotated[int, Field(ge=2)] = Field(
        16, description="Number of segments of one level and hour at which they are merged while the hour lasts."
    )
    compact_max_inputs: Annotated[int, Field(ge=2, le=1_000)] = Field(
        64, description="Maximum number of segments that are merged at once."
    )
    compact_min_bytes: Count = Field(
        536_870_912, description="Size from which a segment is large enough, and not merged any more."
    )
    compact_target_bytes: Annotated[int, Field(ge=1, le=4_000_000_000)] = Field(
        1_073_741_824, description="Maximum size of all segments that are merged into one."
    )
    compact_wait_s: Seconds = Field(
        10.0, description="How long new segments of an hour are gathered before it is decided what to merge."
    )
    compact_age_s: Annotated[float, Field(ge=0)] = Field(
        600.0, description="Time after the end of an hour at which what is left of it is merged, however little it is."
    )
    compact_day_age_s: Annotated[float, Field(ge=0)] = Field(
        43_200.0, description="Time after the end of a day at which its segments are merged across hours."
    )
    compact_deduplicate: str = Field(
        "",
        description="Orgs and signals whose equal rows are stored once after compaction, as ORG_ID/SIGNAL or "
        "*/SIGNAL separated by spaces. Without it, only rows of an object that was ingested twice are removed.",
        pattern=r"^(\S+/(logs|metrics|traces)(\s+|$))*$",
    )


class QuerySettings(Section):
    """Query workers, their memory and caches, and the cost limits of a query."""

    workers: str = Field(
        "",
        description="Query workers, as host:port,host:port, or dns://name:port for all addresses of a name. Empty "
        "means the worker that runs on this data.dir, or else the API process itself.",
    )
    worker_host: str = Field("127.0.0.1", description="Address that a query worker listens on.")
    worker_port: Port = Field(0, description="Arrow Flight port of a query worker; 0 lets the system choose.")
    worker_token: str = Field(
        "",
        description="Secret shared by the API and its workers; empty means one stored in data.dir, for one machine.",
        json_schema_extra={"secret": True},
    )
    worker_tls_cert: str = Field(
        "",
        description="PEM file of this process's certificate. The API and its workers present it to each other; empty "
        "means no certificate.",
    )
    worker_tls_key: str = Field("", description="PEM file of the private key for query.worker_tls_cert.")
    worker_tls_ca: str = Field(
        "",
        description="PEM file of the trusted certificate authority (CA). A worker with this setting refuses clients "
        "without a certificate signed by that CA.",
    )
    worker_tls_name: str = Field(
        "", description="Host name in the workers' certificates, if it differs from the address used to reach them."
    )
    worker_memory_bytes: Count = Field(
        4_294_967_296,
        description="Memory, without mapped files, above which a worker empties its caches and, if that does not "
        "help, finishes its queries and restarts.",
    )
    worker_memory_patience_s: Seconds = Field(
        10.0, description="How long memory must stay above query.worker_memory_bytes before the worker restarts."
    )
    worker_max_memory_bytes: Count = Field(
        8_589_934_592, description="Memory above which a worker stops the query that uses the most."
    )
    worker_drain_s: Seconds = Field(
        10.0, description="How long a stopping or restarting worker may take to finish its queries."
    )
    worker_patience_s: Seconds = Field(
        15.0, description="How long queries wait for a restarting worker when no other worker is available."
    )
    cache_dir: str = Field("", description="Folder for cached segments; empty means data.dir.")
    cache_bytes: Count = Field(10_737_418_240, description="Maximum size of cached segments per process.")
    table_cache_bytes: Count = Field(536_870_912, description="Memory for decoded series tables.")
    decoded_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        1_073_741_824, description="Memory for decoded samples and columns of rows that are read repeatedly; 0: none."
    )
    filter_cache_bytes: Annotated[int, Field(ge=0)] = Field(
        67_108_864,
        description="Memory of an API for filters of segments of logs and traces: what they exclude is asked of no "
        "worker; 0: none.",
    )
    fetches: Annotated[int, Field(ge=1, le=256)] = Field(
        16, description="Segments that a worker fetches and reads concurrently."
    )
    worker_scans: Count = Field(8, description="Requests that a worker answers concurrently; others wait.")
    max_scan_bytes: Count = Field(2_147_483_648, description="Bytes of samples that one query may hold in a worker.")
    attempts: Count = Field(3, description="Workers to try for a segment before it counts as failed.")
    timeout_s: Seconds = Field(120.0, description="How long a query may take.")
    index_patience_s: Seconds = Field(
        300.0, description="How long queries use cached lists of segments while the index does not answer."
    )


class FormatsSettings(Section):
    """How raw objects are read, and limits for one object."""

    compressed_bytes: Count = Field(268_435_456, description="Largest object, as stored in the bucket.")
    expanded_bytes: Annotated[int, Field(ge=1, le=2_000_000_000)] = Field(
        1_073_741_824, description="Largest object after decompression."
    )
    ratio: Count = Field(
        500, description="Highest allowed ratio of the decompressed to the compressed size of an object."
    )
    line_bytes: Count = Field(8_388_608, description="Longest line of JSON or CSV; a longer line counts as bad.")
    nesting_depth: Annotated[int, Field(ge=1, le=512)] = Field(
        64, description="Deepest nesting of JSON arrays and objects; a deeper raw object is refused."
    )
    attributes_per_row: Count = Field(
        1_024, description="Maximum number of attributes per row; further ones are dropped and counted."
    )
    value_bytes: Count = Field(
        1_048_576, description="Longest attribute value or message; a longer one is truncated and counted."
    )
    key_bytes: Count = Field(1_024, description="Longest attribute name; a longer one is truncated and counted.")
    promote_resource: str = Field(
        "",
        description="Resource attributes that become labels of every metric series, separated by commas, as "
        "k8s.cluster.name,deployment.environment.",
    )
    mapping: str = Field(
        "",
        description="Keys that hold fields, and formats, by prefix: lines of PREFIX NAME=VALUE ..., as "
        "logs-raw/old/ time=when message=what; see formats/fields.md.",
    )


class DemoSettings(Section):
    """The demo shop of `serve --demo`."""

    rate: Annotated[float, Field(ge=1)] = Field(
        200.0, description="Log records per second, averaged over a day; spans and metrics in proportion."
    )
    seed: int = Field(0, description="Random seed; the same seed gives the same shop.")


class AuthSettings(Section):
    """Authentication of API callers."""

    required: bool = Field(
        True, description="Whether the API requires a key. Turn it off only on your own machine, bound to loopback."
    )


class LimitSettings(Section):
    """Limits of the query API per org. `lakerunner org limits` sets different ones for an org."""

    timeout_s: Seconds = Field(60.0, description="How long a query may take, including its wait.")
    max_range_s: Seconds = Field(
        31_622_400.0, description="Longest time span of a query, from the first sample that it reads to the last."
    )
    max_steps: Count = Field(11_000, description="Maximum number of steps of a range query.")
    max_series: Count = Field(200_000, description="Maximum number of series in any part of a query.")
    max_samples: Count = Field(50_000_000, description="Maximum number of samples that a query may read and compute.")
    max_bytes: Count = Field(4_294_967_296, description="Maximum number of segment bytes that a query may read.")
    max_points: Count = Field(
        10_000_000,
        description="Maximum number of samples in one answer; each takes about 25 bytes of memory and of the network.",
    )
    max_entries: Count = Field(
        50_000, description="Maximum number of log entries in one answer of Loki's API. Streams and exports have none."
    )
    max_tier_s: Annotated[int, Field(ge=0)] = Field(
        86_400,
        description="Coarsest tier of metrics that queries may read instead of raw samples, in seconds (60, 300, 3600, "
        "86400); 0 means raw samples only. Answers are the same; see promql.md.",
    )
    approximate: Annotated[int, Field(ge=0, le=1)] = Field(
        0,
        description="Whether `quantile_over_time` may be computed from the sketches of rollup tiers, within 1%: 1 yes, "
        "with a warning; 0 only if a query asks for it (`approximate=1`). See promql.md.",
    )
    rule_rewrites: Annotated[int, Field(ge=0, le=1)] = Field(
        1,
        description="Whether materialization rules may answer parts of queries: 1 where the answer is provably the "
        "same, 0 never. See materialization.md.",
    )
    org_queries: Count = Field(4, description="Concurrent queries per org.")
    org_tails: Count = Field(10, description="Concurrent live tails per org and API process.")


class ApiSettings(LimitSettings):
    """The query API: limits per org, and how capacity is shared between orgs."""

    url: str = Field("", description="Address of the API for `lakerunner query`; empty means the API on this machine.")
    key: str = Field("", description="API key that `lakerunner query` sends.", json_schema_extra={"secret": True})
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        8, description="Queries that run concurrently; others wait their turn."
    )
    trace_reach_s: Seconds = Field(
        1_800.0,
        description="How far beyond the asked time the other spans of a trace are looked for by TraceQL. A longer "
        "trace is judged by the spans within.",
    )
    finish_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        20.0, description="How long queries under way may take to finish after the API received SIGTERM."
    )
    slow_lane: bool = Field(
        True,
        description="Whether long queries, and all queries of an org that uses very much, run in a separate process "
        "with low priority. It is started where there are several orgs.",
    )
    slow_lane_bytes: Count = Field(
        4_294_967_296, description="Memory above which the slow-lane process is restarted; its queries fail."
    )
    org_waiting: Count = Field(100, description="Maximum number of waiting queries per org; further ones are refused.")
    lookback_s: Seconds = Field(300.0, description="How far back a selector looks for the latest sample.")
    metadata_range_s: Seconds = Field(
        86_400.0, description="How far back labels and series are searched when a request has no start."
    )
    query_log: bool = Field(
        True,
        description="Whether metric queries are logged, with who asked, how often and what it cost, for "
        "`lakerunner rules suggest`. Secrets in their texts are masked.",
    )
    query_log_queries: Count = Field(1_000, description="Different queries per org and day that are logged.")
    cache_bytes: Annotated[int, Field(ge=0)] = Field(
        134_217_728, description="Memory for cached answers; 0 disables this cache."
    )
    cache_ttl_s: Seconds = Field(3_600.0, description="How long an answer may be cached.")
    heartbeat_s: Seconds = Field(5.0, description="How long a stream may be silent before a heartbeat is sent.")
    shadow_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.01,
        description="Share of the queries answered by materialization rules that are also computed from raw rows, in "
        "the background, and compared. A difference retires the rules.",
    )


class Settings(Section):
    """All settings."""

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
    derive: DeriveSettings = Field(default_factory=DeriveSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    sweep: SweepSettings = Field(default_factory=SweepSettings)
    monitor: MonitorSettings = Field(default_factory=MonitorSettings)
    ruler: RulerSettings = Field(default_factory=RulerSettings)
    canary: CanarySettings = Field(default_factory=CanarySettings)
    delete: DeleteSettings = Field(default_factory=DeleteSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    pipeline: PipelineSettings = Field(default_factory=PipelineSettings)
    query: QuerySettings = Field(default_factory=QuerySettings)
    formats: FormatsSettings = Field(default_factory=FormatsSettings)
    demo: DemoSettings = Field(default_factory=DemoSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)

    @property
    def store_url(self) -> str:
        """The address of the bucket; the default is a folder under data.dir."""
        return self.store.url or (self.data.dir.resolve() / "bucket").as_uri()
