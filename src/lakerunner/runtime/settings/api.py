"""The query API: authentication, limits per org, and how capacity is shared."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lakerunner.runtime.settings.section import Count, Seconds, Section


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
    max_answer_bytes: Count = Field(
        268_435_456,
        description="Maximum size of the log entries in one answer of Loki's API. Streams and exports have none.",
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
