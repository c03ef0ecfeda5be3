"""Notices new samples of metrics that alerts read, so that their groups are evaluated at once and not by the clock.

New segments are looked for as live tails do it. A segment's metrics stand in the index; a group is due at the end of
the bucket of ten seconds that holds the segment's last sample, when the whole bucket can have arrived.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import StoredRule, live_rules
from lakerunner.index.rule_groups import GroupKey
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.query.lake import Lake
from lakerunner.ruler.answered import answering_rules
from lakerunner.ruler.group import RunningGroup
from lakerunner.ruler.results import COLLECTOR
from lakerunner.rules.definitions import Alert

#: Metrics that Lakerunner derives by itself (pipeline/derive).
_BUILT_IN = ("traces_spanmetrics_", "traces_service_graph_")
#: Only segments whose times are so near to now are looked for: later ones are evaluated by the clock.
_PAST_NS, _FUTURE_NS = 600 * NS_PER_S, 60 * NS_PER_S
_BUCKET_MS = 10_000
_NAMES_S = 10.0


@dataclass(slots=True)
class Watching:
    """Used by one thread."""

    database: Database
    lake: Lake
    #: `derived`, `all` or `off` (ruler.continuous).
    mode: str
    _seen: dict[uuid.UUID, set[uuid.UUID]] = field(default_factory=dict)
    #: Groups without an interval of their own have this one.
    interval_s: float = 60.0
    _derived: dict[uuid.UUID, tuple[float, list[StoredRule]]] = field(default_factory=dict)
    #: Group -> its version and the rules it was compared with, and what answers its alerts.
    _answered: dict[GroupKey, tuple[object, frozenset[str]]] = field(default_factory=dict)

    def look(self, groups: Collection[RunningGroup]) -> dict[GroupKey, int]:
        """Groups with new samples, and the time in milliseconds at which each should be evaluated."""
        if self.mode == "off":
            return {}
        by_org: dict[uuid.UUID, list[RunningGroup]] = {}
        for group in groups:
            # A group that no sample could concern needs no look at its org's segments.
            if self._concerns(group.key.org_id, group, None):
                by_org.setdefault(group.key.org_id, []).append(group)
        self._seen = {org_id: seen for org_id, seen in self._seen.items() if org_id in by_org}
        held = {group.key for group in groups}
        self._answered = {key: known for key, known in self._answered.items() if key in held}
        due: dict[GroupKey, int] = {}
        for org_id, of_org in by_org.items():
            fresh = self._fresh(org_id)
            if fresh:
                due |= self._due(org_id, of_org, fresh)
        return due

    def _fresh(self, org_id: uuid.UUID) -> list[Segment]:
        now_ns = time.time_ns()
        around = TimeRange(now_ns - _PAST_NS, now_ns + _FUTURE_NS)
        segments = [
            segment
            for segment in self.lake.segments(org_id, METRICS.name, around)
            # Later stages write samples again that are there already, and what rules make needs no further rules.
            if segment.level == 0 and segment.tier_s == RAW_TIER_S and segment.collector != COLLECTOR
        ]
        before = self._seen.get(org_id)
        self._seen[org_id] = {segment.segment_id for segment in segments}
        if before is None:
            return []
        return [segment for segment in segments if segment.segment_id not in before]

    def _due(
        self, org_id: uuid.UUID, groups: Sequence[RunningGroup], fresh: Sequence[Segment]
    ) -> Mapping[GroupKey, int]:
        due: dict[GroupKey, int] = {}
        for segment in fresh:
            metrics = segment.pruning.values.get("metric_name")
            last_ms = (segment.time_range.end_ns - 1) // 1_000_000
            at_ms = -(-last_ms // _BUCKET_MS) * _BUCKET_MS
            for group in groups:
                if self._concerns(org_id, group, metrics):
                    due[group.key] = max(due.get(group.key, 0), at_ms)
        return due

    def _concerns(self, org_id: uuid.UUID, group: RunningGroup, metrics: Sequence[str] | None) -> bool:
        wanted = group.alert_metrics()
        if wanted is None:
            return self.mode == "all"
        rules = self._derived_rules(org_id)
        if self.mode == "derived":
            derived = {rule.name for rule in rules}
            wanted = frozenset(name for name in wanted if name in derived or name.startswith(_BUILT_IN))
        wanted |= self._answering(group, rules)
        # A segment with very many metrics does not list them.
        return bool(wanted) if metrics is None else not wanted.isdisjoint(metrics)

    def _answering(self, group: RunningGroup, rules: Sequence[StoredRule]) -> frozenset[str]:
        """Rules whose series answer alerts of the group that are in LogQL or TraceQL."""
        compared = group.version, tuple(rule.rule_id for rule in rules)
        known = self._answered.get(group.key)
        if known is None or known[0] != compared:
            width_ms = round(1000 * (group.group.interval_s or self.interval_s))
            found = [answering_rules(rule, width_ms, rules) for rule in group.rules if isinstance(rule, Alert)]
            known = self._answered[group.key] = compared, frozenset().union(*found)
        return known[1]

    def _derived_rules(self, org_id: uuid.UUID) -> list[StoredRule]:
        known = self._derived.get(org_id)
        if known is None or time.monotonic() - known[0] > _NAMES_S:
            with self.database.transaction() as tx:
                known = self._derived[org_id] = (time.monotonic(), live_rules(tx, org_id))
        return known[1]
