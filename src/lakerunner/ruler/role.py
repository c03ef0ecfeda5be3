"""The ruler's role: takes its share of the groups, evaluates each when it is due, and sends alerts."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from lakerunner.index.alert_states import read_states, replace_states
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease
from lakerunner.index.org_limits import read_limits
from lakerunner.index.orgs import list_orgs
from lakerunner.index.role import IndexedRole
from lakerunner.index.rule_groups import GroupKey, group_versions, load_groups
from lakerunner.index.series_key import series_key
from lakerunner.index.session import Session
from lakerunner.index.watermark import waiting_since
from lakerunner.model.errors import Conflict, LakeError
from lakerunner.query.lake import open_lake
from lakerunner.query.metrics import QUERY_METRICS
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.warm import query_kernels
from lakerunner.ruler.ended import EndedGroups, EndedRunningGroup
from lakerunner.ruler.group import EvaluationContext, RunningGroup
from lakerunner.ruler.metrics import BEHIND, EVALUATIONS, GROUPS, MISSED, RULER_METRICS, SECONDS
from lakerunner.ruler.notify import Notifier
from lakerunner.ruler.schedule import Due, frontier_ms, next_due, offset_ms
from lakerunner.ruler.shards import Shards, shard_of
from lakerunner.ruler.watching import Watching
from lakerunner.rules.definitions import PROMQL, TRACEQL
from lakerunner.rules.evaluation.rule import Surroundings
from lakerunner.rules.evaluation.stored_state import rule_key, to_json
from lakerunner.rules.evaluation.vector import Ask, Sample, of_spans, samples_of
from lakerunner.runtime.kernels import Share
from lakerunner.runtime.memory import limit_malloc_arenas
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.serve.admission.admission import Admission
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.admission.turns import TooMany
from lakerunner.serve.caller import Caller
from lakerunner.serve.service import QueryService, Question
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: How often the ruler looks what is due, and which groups there are.
_LOOK_S, _GROUPS_S = 0.5, 2.0
#: How often it looks while evaluations run or wait: missed ones are made up for one after the other.
_BEHIND_S = 0.05
#: How long limits and names of orgs are believed.
_ORGS_S = 30.0
#: How long a ruler that stops waits for requests to receivers that are under way.
_LAST_REQUEST_S = 5.0
#: A group whose evaluation could not be stored rests for this long.
_REST_S = 5.0


@dataclass(slots=True)
class _Held:
    """A group of this process, and what is under way for it."""

    group: RunningGroup
    #: The lease under which it was loaded. Under a later one, another ruler may have gone on with it in between.
    lease: Lease
    running: Future[None] | None = None
    #: When new samples ask for an evaluation; None: they do not.
    wanted_ms: int | None = None
    rests_until_s: float = 0.0
    evaluated_s: float = field(default_factory=lambda: float("-inf"))


class Ruler(IndexedRole):
    name = "ruler"
    sentence = "Evaluate recording and alerting rules, write their results, and send alerts. Rulers share the groups."
    registries = (RULER_METRICS, QUERY_METRICS)

    @classmethod
    def kernels(cls) -> Sequence[Share]:
        return query_kernels()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        limit_malloc_arenas()
        ruler = settings.ruler
        self._settings = ruler
        self._store = open_store(StoreConfig.of(settings))
        self._lake = open_lake(settings, self.database)
        api = settings.api.model_copy(
            update={"threads": ruler.threads, "org_queries": ruler.org_threads, "slow_lane": False, "cache_bytes": 0}
        )
        self._admission = Admission(api)
        self._service = QueryService(api, self._lake, self._admission)
        self._lookback_ms = round(settings.api.lookback_s * 1000)
        self._held: dict[GroupKey, _Held] = {}
        self._watching = Watching(self.database, self._lake, ruler.continuous, interval_s=ruler.interval_s)
        self._surroundings = Surroundings({}, ruler.external_url, ruler.max_results, ruler.org_results)
        self._orgs: dict[uuid.UUID, tuple[str, Caller]] = {}
        self._orgs_s = self._groups_s = float("-inf")
        self._series_key = b""
        self._ended = EndedGroups(self.database)
        self._leases: dict[int, Lease] = {}
        #: Until when the leases hold for certain, on a clock that also counts while the host is suspended.
        self._certain_until_s = float("inf")
        self._is_behind = False
        self.notifier = Notifier(
            ruler, self.database, self._notifying_groups, self._org_name, self._lease_of, self._holds_leases
        )

    def run(self, stop: Stop) -> None:
        ttl_s = self.settings.bus.session_timeout_s * 0.6
        with self.database.transaction() as tx:
            self._series_key = series_key(tx)
        self.notifier.start(stop)
        with Session(self.database, ttl_s) as session:
            shards = Shards(self.database, session, ttl_s)
            renewed_s = float("-inf")
            try:
                while not stop:
                    if time.monotonic() - renewed_s > ttl_s / 4:
                        asked_s = _clock_s()
                        shards.renew({shard_of(key) for key in self.notifier.in_flight})
                        renewed_s = time.monotonic()
                        self._certain_until_s = asked_s + ttl_s
                    self.look(shards.held)
                    stop.wait(_BEHIND_S if self._is_behind else _LOOK_S)
                self._drain()
                # Before the leases are released: what a last request sent is stored under them.
                self.notifier.join(_LAST_REQUEST_S)
            finally:
                self._held.clear()
                try:
                    shards.release()
                except LakeError as error:
                    log().warning("leases not released", error=str(error))

    def look(self, shards: dict[int, Lease], now_ms: int | None = None) -> None:
        """Take and drop groups as the shards and the index have them, and start what is due."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._leases = dict(shards)
        self._finish()
        is_lost = any(shards.get(shard_of(key)) != held.lease for key, held in self._held.items())
        if is_lost or time.monotonic() - self._groups_s > _GROUPS_S:
            self._refresh(shards)
        for key, at_ms in self._watching.look(self._groups()).items():
            held = self._held[key]
            held.wanted_ms = max(held.wanted_ms or 0, at_ms)
        frontiers: dict[tuple[uuid.UUID, frozenset[str]], int] = {}
        behind_ms = 0
        self._is_behind = any(held.running is not None for held in self._held.values())
        newest = now_ms - round(self._settings.arrival_s * 1000)
        for held in self._held.values():
            group = held.group
            if self._due(held, newest, now_ms) is None:
                # Not even if no raw object waits: the ledger need not be asked.
                continue
            source = group.key.org_id, group.signals
            if source not in frontiers:
                frontiers[source] = self._frontier(*source, now_ms)
            due = self._due(held, frontiers[source], now_ms)
            if due is not None:
                behind_ms = max(behind_ms, frontiers[source] - due.at_ms)
                self._is_behind = True
                self._start(held, due)
        BEHIND.set(behind_ms / 1000)

    def _frontier(self, org_id: uuid.UUID, signals: frozenset[str], now_ms: int) -> int:
        with self.database.transaction() as tx:
            since = waiting_since(tx, org_id, signals) if signals else None
        since_ms = None if since is None else round(since.timestamp() * 1000)
        settings = self._settings
        return frontier_ms(now_ms, since_ms, round(settings.arrival_s * 1000), round(settings.max_wait_s * 1000))

    def _due(self, held: _Held, frontier: int, now_ms: int) -> Due | None:
        group = held.group
        if held.running is not None or time.monotonic() < held.rests_until_s:
            return None
        if group.partial_at_ms is not None:
            return Due(group.partial_at_ms)
        wanted = held.wanted_ms
        if wanted is not None and wanted <= now_ms:
            if group.evaluated_at_ms is not None and wanted <= group.evaluated_at_ms:
                # Samples of a time that was evaluated already: the clock's next evaluation sees them.
                held.wanted_ms = None
            elif time.monotonic() - held.evaluated_s >= self._settings.continuous_gap_s:
                return Due(wanted)
        interval_ms = round(1000 * (group.group.interval_s or self._settings.interval_s))
        if group.group.query_offset_s is not None:
            # The group says itself how late its data may be.
            frontier = now_ms
        return next_due(
            group.evaluated_at_ms,
            frontier,
            interval_ms,
            offset_ms(group.key, interval_ms, whole_buckets=group.reads_rows),
            self._settings.catch_up,
        )

    def _start(self, held: _Held, due: Due) -> None:
        caller = self._org(held.group.key.org_id)[1]
        trigger = "commit" if held.wanted_ms == due.at_ms else "clock"
        listed = self._admission.listed(caller, "rules", held.group.key.name, self._settings.timeout_s)
        query = listed.__enter__()
        try:
            held.running = self._admission.submit(query, lambda query: self._evaluate(held, due, query, trigger))
        except TooMany:
            # The org has enough under way: the group stays due.
            listed.__exit__(None, None, None)
            return
        held.running.add_done_callback(lambda _: listed.__exit__(None, None, None))

    def _evaluate(self, held: _Held, due: Due, query: RunningQuery, trigger: str) -> None:
        began_s = time.monotonic()
        group = held.group
        try:
            context = EvaluationContext(
                lambda language: self._ask(language, group, query),
                self.database,
                self._store,
                self._series_key,
                replace(self._surroundings, left=self._left_for(group)),
                held.lease,
            )
            good = group.evaluate(due.at_ms, due.missed, context)
        finally:
            held.evaluated_s = time.monotonic()
        SECONDS.observe(time.monotonic() - began_s)
        EVALUATIONS.labels("stored" if good else "failed", trigger).inc()
        MISSED.inc(due.missed)
        if due.missed:
            log().warning("evaluations missed", group=group.key.name, org=str(group.key.org_id), missed=due.missed)
        self.notifier.wake()

    def _left_for(self, group: RunningGroup) -> int:
        """Series and alerts that the rules of a group may have beside those of the org's other groups here."""
        others = (each for each in self._groups() if each is not group and each.key.org_id == group.key.org_id)
        return self._surroundings.org_results - sum(each.results for each in others)

    def _ask(self, language: str, group: RunningGroup, query: RunningQuery) -> Ask:
        width_ms = round(1000 * (group.group.interval_s or self._settings.interval_s))
        lookback_ms = {PROMQL: self._lookback_ms, TRACEQL: width_ms}.get(language, 0)

        def ask(text: str, time_ms: int) -> list[Sample]:
            times = QueryTimes(time_ms, time_ms, 0)
            # Partial answers are errors here: an alert must not fire, or end, because a segment could not be read.
            question = Question(language, text, times, lookback_ms, fresh=True, partial=False)
            found = samples_of(self._service.answer(question, query).result)
            return of_spans(found) if language == TRACEQL else found

        return ask

    def _finish(self) -> None:
        """Look at what ended. A group that another process has, or that was changed, is loaded anew."""
        for key, held in list(self._held.items()):
            if held.running is None or not held.running.done():
                continue
            error, held.running = held.running.exception(), None
            if error is None:
                continue
            EVALUATIONS.labels("dropped", "").inc()
            if not isinstance(error, LakeError):
                log().error("evaluation failed", group=key.name, org=str(key.org_id), error=repr(error))
            else:
                log().warning("evaluation not stored", group=key.name, org=str(key.org_id), error=str(error))
            if isinstance(error, Conflict):
                del self._held[key]
                self._groups_s = float("-inf")
            else:
                held.rests_until_s = time.monotonic() + _REST_S

    def _refresh(self, shards: dict[int, Lease]) -> None:
        with self.database.transaction() as tx:
            versions = group_versions(tx)
        mine = {key: version for key, version in versions.items() if shard_of(key) in shards}
        for key, held in list(self._held.items()):
            is_current = mine.get(key) == held.group.version and shards.get(shard_of(key)) == held.lease
            if not is_current and held.running is None:
                del self._held[key]
        # After the groups were dropped: whatever is sent from now on is about the groups that are loaded here.
        busy = self.notifier.in_flight
        missing = [key for key in mine if key not in self._held and key not in busy]
        if missing:
            for group in load_running(self.database, missing):
                self._held[group.key] = _Held(group, shards[shard_of(group.key)])
        self._ended.refresh(set(shards), [receiver.name for receiver in self.notifier.receivers])
        self._groups_s = float("-inf") if busy - self._held.keys() else time.monotonic()
        GROUPS.set(len(self._held))

    def _groups(self) -> list[RunningGroup]:
        return [held.group for held in list(self._held.values())]

    def _notifying_groups(self) -> list[RunningGroup]:
        return [group for group in (*self._groups(), *self._ended.groups()) if self._lease_of(group) is not None]

    def _lease_of(self, group: RunningGroup) -> Lease | None:
        """The lease under which alerts of the group are sent; None if what is known of them may be out of date."""
        lease = self._leases.get(shard_of(group.key))
        if isinstance(group, EndedRunningGroup):
            return lease
        held = self._held.get(group.key)
        return lease if held is not None and held.group is group and held.lease == lease else None

    def _holds_leases(self) -> bool:
        return _clock_s() < self._certain_until_s

    def _org(self, org_id: uuid.UUID) -> tuple[str, Caller]:
        if time.monotonic() - self._orgs_s > _ORGS_S or org_id not in self._orgs:
            with self.database.transaction() as tx:
                self._orgs = {
                    org.org_id: (org.name, Caller(org.org_id, "ruler", read_limits(tx, org.org_id)))
                    for org in list_orgs(tx)
                }
            self._orgs_s = time.monotonic()
        return self._orgs.get(org_id, (str(org_id), Caller(org_id, "ruler")))

    def _org_name(self, group: RunningGroup) -> str:
        return self._org(group.key.org_id)[0]

    def _drain(self) -> None:
        deadline_s = time.monotonic() + self._settings.timeout_s
        while any(held.running is not None for held in self._held.values()) and time.monotonic() < deadline_s:
            self._finish()
            time.sleep(0.05)

    def close(self) -> None:
        self._admission.close()
        self._service.close()
        self._lake.close()
        super().close()


def _clock_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def load_running(database: Database, keys: list[GroupKey]) -> list[RunningGroup]:
    """Groups with what their rules remember. One that cannot be read is left out, and said."""
    made = []
    with database.transaction() as tx:
        for stored in load_groups(tx, keys):
            states = read_states(tx, stored.org_id, stored.namespace, stored.name)
            try:
                group = RunningGroup.of(stored, states)
            except (LakeError, ValueError) as error:
                log().error("group not readable", group=stored.name, org=str(stored.org_id), error=str(error))
                continue
            if [state.rule_key for state in states] != [rule_key(rule) for rule in group.rules] and states:
                replace_states(
                    tx,
                    group.key,
                    [
                        (number, rule_key(rule), to_json(state), json.dumps(sent))
                        for number, (rule, state, sent) in enumerate(
                            zip(group.rules, group.states, group.sent, strict=True)
                        )
                    ],
                )
            made.append(group)
    return made
