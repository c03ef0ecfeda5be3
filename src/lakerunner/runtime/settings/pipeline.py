"""Spark, boxers, and the stages that process work items."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Seconds, Section


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
