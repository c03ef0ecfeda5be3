"""The canary role: writes a round of known rows now and then, and looks for those of former rounds.

It uses an org and an API key of its own. Its raw objects are deleted once their rows are visible, its rounds are
forgotten after `canary.keep_s`, and its segments go by the org's retention. One process leads.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram

from lakerunner.index import api_keys, canary_rounds, orgs, retention
from lakerunner.index.api_keys import Scope
from lakerunner.index.canary_rounds import CanaryRound
from lakerunner.index.database import Connection
from lakerunner.index.leases import Lease
from lakerunner.index.overdue import Overdue
from lakerunner.index.singleton import SingletonRole
from lakerunner.model.errors import BadInput, LakeError, Missing, Unavailable
from lakerunner.model.signals import SIGNALS
from lakerunner.model.time import NS_PER_MS
from lakerunner.ops.canary.look import QueryClient, look
from lakerunner.ops.canary.rows import encode
from lakerunner.ops.supervisor import read_serve_state
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log
from lakerunner.store.config import StoreConfig
from lakerunner.store.keys import raw_prefix
from lakerunner.store.open import open_store

CANARY_METRICS = CollectorRegistry()
WRITTEN = Counter("lakerunner_canary_written_rows", "Known rows written.", ["signal"], registry=CANARY_METRICS)
LOOKS = Counter(
    "lakerunner_canary_looks", "Looks for known rows through the query API.", ["signal", "outcome"],
    registry=CANARY_METRICS,
)  # fmt: skip
VISIBLE_SECONDS = Histogram(
    "lakerunner_canary_visible_seconds", "From written to visible through the query API.", ["signal"],
    buckets=(1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600), registry=CANARY_METRICS,
)  # fmt: skip

COLLECTOR = "canary"
_KEY_NAME = "canary"
_DAY_S = 86_400.0
_LOOK_EVERY_S = 1.0
#: Rounds looked at in one go, so that a pipeline that stands still does not make the canary a load.
_MAX_WAITING = 9


class Canary(SingletonRole):
    name = "canary"
    sentence = "Write known rows of all signals and check them through the query API. One leads; others stand by."
    registries = (CANARY_METRICS,)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store = open_store(StoreConfig.of(settings))
        self._written_at_s = float("-inf")

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "store": self._store.ping}

    def lead(self, lease: Lease, until: Stop) -> None:
        org_id, client = self._identify()
        log().info("canary leads", org=str(org_id), api=client.url)
        while not until:
            try:
                self.step(org_id, client)
            except Unavailable as error:
                log().warning("canary waits", error=str(error))
            until.wait(_LOOK_EVERY_S)

    def step(self, org_id: uuid.UUID, client: QueryClient) -> None:
        """Write a round when it is time, then look at those that wait, and at some of the others again."""
        interval_s = self.settings.canary.interval_s
        since_s = time.monotonic() - self._written_at_s
        wrote = since_s >= interval_s
        if wrote:
            self._written_at_s = time.monotonic()
            self._write(org_id)
        with self.database.transaction() as tx:
            waiting = canary_rounds.waiting_rounds(tx, _MAX_WAITING)
            again = self._again(tx, min(since_s, interval_s * 2)) if wrote else []
        for each in (*waiting, *again):
            self._look(client, each)
        if wrote:
            self._forget()

    def _again(self, tx: Connection, since_s: float) -> list[CanaryRound]:
        """Rounds whose age passed 1, 2, 4, 8 … intervals since the last time, and the oldest.

        They have been compacted, rolled up and swept meanwhile. What happens at some age is seen at twice that age.
        """
        passed = canary_rounds.rounds_of_age(tx, Overdue(self.settings.canary.interval_s, since_s).ages())
        oldest = canary_rounds.oldest_rounds(tx, len(SIGNALS))
        return list({(each.round_id, each.signal): each for each in (*passed, *oldest)}.values())

    def _write(self, org_id: uuid.UUID) -> None:
        now = datetime.now(UTC)
        event_ns = time.time_ns() // NS_PER_MS * NS_PER_MS
        for signal in SIGNALS:
            key = f"{raw_prefix(org_id)}{COLLECTOR}/{signal}_{event_ns // NS_PER_MS}.binpb"
            each = CanaryRound(event_ns // NS_PER_MS, signal.name, key, self.settings.canary.rows, event_ns, now)
            with self.database.transaction() as tx:
                canary_rounds.put_round(tx, each)
            self._store.put(key, encode(each))
            WRITTEN.labels(signal.name).inc(each.rows)

    def _look(self, client: QueryClient, each: CanaryRound) -> None:
        try:
            found = look(client, each)
        except LakeError as error:
            LOOKS.labels(each.signal, "failed").inc()
            log().warning("canary could not look", signal=each.signal, error=str(error))
            return
        with self.database.transaction() as tx:
            canary_rounds.put_look(tx, each, found.rows, found.distinct)
        is_visible = found.distinct >= each.rows
        outcome = "doubled" if found.rows > found.distinct else "whole" if is_visible else "partial"
        LOOKS.labels(each.signal, outcome).inc()
        if is_visible and each.visible_at is None:
            VISIBLE_SECONDS.labels(each.signal).observe((datetime.now(UTC) - each.written_at).total_seconds())
            self._store.delete([each.key])
        elif each.visible_at is not None and found.distinct < each.rows:
            log().error(
                "canary rows lost", signal=each.signal, round=each.round_id, found=found.distinct, rows=each.rows
            )

    def _forget(self) -> None:
        with self.database.transaction() as tx:
            expired = canary_rounds.forget_rounds(tx, self.settings.canary.keep_s)
        self._store.delete(expired)

    def _identify(self) -> tuple[uuid.UUID, QueryClient]:
        """The canary's org, which is created if it is missing, and a client with a new key for it."""
        with self.database.transaction() as tx:
            try:
                org = orgs.find_org(tx, self.settings.canary.org)
            except Missing:
                org = orgs.create_org(tx, self.settings.canary.org)
            if org.org_id == orgs.DEFAULT_ORG_ID:
                raise BadInput("cannot use the default org for the canary", hint="set canary.org", where="canary.org")
            # Twice as long, and a day more: a look must never find less because of the retention.
            keep_s = 2 * self.settings.canary.keep_s + _DAY_S
            retention.set_keep(tx, org.org_id, dict.fromkeys(retention.ALL_KEPT, keep_s))
            # A former process's key: nobody knows its secret any more.
            api_keys.delete_keys(tx, _KEY_NAME, org.org_id)
            made = api_keys.create_key(tx, _KEY_NAME, [Scope.QUERY], [org.org_id])
        return org.org_id, QueryClient(self._api_url(), made.secret)

    def _api_url(self) -> str:
        if self.settings.api.url:
            return self.settings.api.url
        state = read_serve_state(self.settings.data.dir.resolve())
        processes = state["processes"] if state is not None else []
        assert isinstance(processes, list)
        port = next((each["port"] for each in processes if each["name"] == "query-api"), None)
        if port is None:
            raise Unavailable("cannot find the query API of this machine", hint="set api.url", where="api.url")
        return f"http://{self.settings.http.host}:{port}"
