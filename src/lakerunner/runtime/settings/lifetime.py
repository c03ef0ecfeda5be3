"""How long telemetry and the records about it are kept, and how both are deleted."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Keep, Seconds, Section


class RetentionSettings(Section):
    """How long telemetry is kept, by event time. 0 keeps it forever. `lakerunner org retention` differs for an org."""

    logs_s: Keep = Field(0.0, description="How long log records are kept; 0 means forever.")
    traces_s: Keep = Field(0.0, description="How long spans are kept; 0 means forever.")
    metrics_s: Keep = Field(0.0, description="How long metric samples are kept as they were sent; 0 means forever.")
    metrics_10s_s: Keep = Field(0.0, description="How long rollups of 10 seconds are kept; 0 means forever.")
    metrics_1m_s: Keep = Field(0.0, description="How long rollups of a minute are kept; 0 means forever.")
    metrics_5m_s: Keep = Field(0.0, description="How long rollups of 5 minutes are kept; 0 means forever.")
    metrics_1h_s: Keep = Field(0.0, description="How long rollups of an hour are kept; 0 means forever.")
    metrics_1d_s: Keep = Field(0.0, description="How long rollups of a day are kept; 0 means forever.")


class DeleteSettings(Section):
    """Deletion of rows on request."""

    wait_s: Keep = Field(
        300.0,
        description="How long a deletion waits before segments are rewritten. Its rows are hidden at once; until then "
        "it can be cancelled.",
    )


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
