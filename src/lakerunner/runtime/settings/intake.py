"""How raw objects are discovered and read, and how fast the demo shop writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Seconds, Section


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
