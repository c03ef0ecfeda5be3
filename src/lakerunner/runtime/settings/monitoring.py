"""The monitor and the canary, which watch a deployment."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakerunner.runtime.settings.section import Seconds, Section, Share


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
