"""Metrics derived from rows, and recording and alerting rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lakerunner.runtime.settings.section import Seconds, Section


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
