"""The roles that there are. Adding one is a class and an entry; a stage of the pipeline brings two.

The entries can be listed without importing the roles, which takes seconds: the command line and the supervisor need
names and sentences only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakerunner.runtime.role import Role


@dataclass(frozen=True, slots=True)
class RoleEntry:
    """The name of a role, its sentence for `--help`, and the function that imports its class."""

    name: str
    sentence: str
    load: Callable[[], type[Role]]


def _query_api() -> type[Role]:
    from lakerunner.serve.query_api import QueryApi

    return QueryApi


def _monitor() -> type[Role]:
    from lakerunner.ops.monitor.role import Monitor

    return Monitor


def _ruler() -> type[Role]:
    from lakerunner.ruler.role import Ruler

    return Ruler


def _relay() -> type[Role]:
    from lakerunner.bus.relay import Relay

    return Relay


def _sweeper() -> type[Role]:
    from lakerunner.ops.sweeper import Sweeper

    return Sweeper


def _pubsub() -> type[Role]:
    from lakerunner.intake.role import Pubsub

    return Pubsub


def _query_worker() -> type[Role]:
    from lakerunner.query.worker.role import QueryWorker

    return QueryWorker


def _canary() -> type[Role]:
    from lakerunner.ops.canary.role import Canary

    return Canary


def _demo() -> type[Role]:
    from lakerunner.demo.role import Demo

    return Demo


def _stage_role(name: str) -> type[Role]:
    from lakerunner.pipeline.stages import stage_roles, stage_roles_by_signal

    return next(role for role in (*stage_roles(), *stage_roles_by_signal()) if role.name == name)


def _of_stage(name: str, sentence: str) -> RoleEntry:
    return RoleEntry(name, sentence, partial(_stage_role, name))


_ALL_SIGNALS = ("logs", "metrics", "traces")
#: Boxer and worker of each stage of the pipeline: name, sentence, and the signals that it has.
_STAGES = (
    ("boxer-ingest", "Gather raw objects of all signals into work items for ingest.", _ALL_SIGNALS),
    ("ingest", "Turn raw objects of all signals into segments, on Spark.", _ALL_SIGNALS),
    ("boxer-compact", "Gather segments of all signals into work items for compact.", _ALL_SIGNALS),
    ("compact", "Merge small segments of all signals into large ones, on Spark.", _ALL_SIGNALS),
    ("boxer-rollup", "Gather windows of all signals into work items for rollup.", ("metrics",)),
    ("rollup", "Roll samples of all signals up to coarser tiers, on Spark.", ("metrics",)),
    (
        "boxer-delete",
        "Gather segments with rows to delete of all signals into work items for delete.",
        _ALL_SIGNALS,
    ),
    ("delete", "Rewrite segments of all signals without the rows that are to be deleted, on Spark.", _ALL_SIGNALS),
    (
        "boxer-backfill",
        "Gather segments that rules have not seen of all signals into work items for backfill.",
        _ALL_SIGNALS,
    ),
    (
        "backfill",
        "Evaluate rules over stored segments of all signals that have not seen them, on Spark.",
        _ALL_SIGNALS,
    ),
)

#: What `serve` runs, in the order in which it starts them.
ROLES: tuple[RoleEntry, ...] = (
    RoleEntry(
        "query-api", "Answer queries: the HTTP APIs of Prometheus, Loki and Tempo, streams, and live tails.", _query_api
    ),
    RoleEntry("monitor", "Serve the status API, export metrics of the whole deployment, and send alerts.", _monitor),
    RoleEntry(
        "ruler",
        "Evaluate recording and alerting rules, write their results, and send alerts. Rulers share the groups.",
        _ruler,
    ),
    RoleEntry(
        "relay",
        "Publish the messages that committed transactions left in the outbox. One leads; others stand by.",
        _relay,
    ),
    RoleEntry(
        "sweeper",
        "Announce again what nobody ended, and delete what is no longer needed. One leads; others stand by.",
        _sweeper,
    ),
    *(_of_stage(name, sentence) for name, sentence, _ in reversed(_STAGES)),
    RoleEntry(
        "pubsub", "Discover new raw objects by queue, webhook or folder, and record each in the ledger once.", _pubsub
    ),
    RoleEntry(
        "query-worker", "Read segments for queries and evaluate over them: fetch, cache, scan, answer.", _query_worker
    ),
)

#: What `serve --demo` runs besides.
DEMO_ROLES: tuple[RoleEntry, ...] = (
    RoleEntry("demo-shop", "Write the telemetry of a small shop into the raw bucket, live.", _demo),
)

#: What `serve` runs besides if `canary.enabled` is set.
CANARY_ROLES: tuple[RoleEntry, ...] = (
    RoleEntry(
        "canary",
        "Write known rows of all signals and check them through the query API. One leads; others stand by.",
        _canary,
    ),
)

#: The stages again, one role per signal.
ROLES_BY_SIGNAL: tuple[RoleEntry, ...] = tuple(
    _of_stage(f"{name}-{signal}", sentence.replace("all signals", signal))
    for name, sentence, signals in _STAGES
    for signal in signals
)
