"""Sends alerts to Alertmanagers and webhooks.

What is due follows from the stored state of alerts and from what was sent to each receiver, which is stored too. So
nothing waits in a queue that a crash could empty: a receiver that fails is asked again with what is due then.
A crash between sending and storing sends an alert again, with the same labels and start, which Alertmanager expects.

A ruler that is suspended within a request may end it after its successor has notified the receiver of something newer.
It then finds its lease gone, and has the successor notify the receiver again, so that the successor has the last word.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from lakerunner.index.database import Database
from lakerunner.index.leases import Lease, is_held
from lakerunner.index.rule_groups import GroupKey
from lakerunner.model.errors import Conflict, LakeError
from lakerunner.model.ids import hashed_id
from lakerunner.ruler.group import RunningGroup
from lakerunner.ruler.metrics import NOTIFICATIONS
from lakerunner.rules.definitions import Alert
from lakerunner.rules.evaluation.alerting import ActiveAlert, State
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.http_post import Post, Poster, addresses_of
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import RulerSettings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import log

_BACKOFF = Backoff(base_s=1.0, cap_s=60.0)
#: How often a receiver looks for what is due, if nobody wakes it.
_LOOK_S = 1.0
#: An Alertmanager takes an alert for resolved after this many missing notifications.
_VALID_TIMES = 4


@dataclass(frozen=True, slots=True)
class DueAlert:
    """An alert that a receiver should be notified of."""

    group: RunningGroup
    number: int
    #: The alert's labels, by which a receiver knows it.
    name: str
    alert: ActiveAlert

    @property
    def sent(self) -> list[object]:
        return [self.alert.state.value, self.alert.active_at_ms]


@dataclass(slots=True)
class Receiver:
    """One address, served by one thread."""

    kind: str
    url: str
    settings: RulerSettings
    post: Post
    #: What it is called where its past is stored: a hash, because the address of a webhook is a secret.
    name: str = ""
    _failures: int = 0
    _retry_at_s: float = 0.0
    wake: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.name = self.name or f"{self.kind}-{hashed_id(self.url.encode()).hex[:12]}"

    def due(self, groups: Sequence[RunningGroup], now_ms: int) -> list[DueAlert]:
        """The alerts to send to the receiver now, at most as many as one request holds."""
        again_ms = 1000 * (self.settings.resend_s if self.kind == "alertmanager" else self.settings.repeat_s)
        found: list[DueAlert] = []
        for group in groups:
            for number, rule in enumerate(group.rules):
                if not isinstance(rule, Alert) or not group.states[number].alerts:
                    continue
                sent = group.sent[number].get(self.name, {})
                for alert in group.states[number].alerts:
                    if alert.state is State.PENDING:
                        continue
                    name = alert.labels.to_json().decode()
                    each = DueAlert(group, number, name, alert)
                    last = sent.get(name)
                    if last is not None and last[:2] == each.sent:
                        sent_ms = float(str(last[2]))
                        if not self._is_old(alert, sent_ms, now_ms, again_ms):
                            continue
                    found.append(each)
                    if len(found) >= self.settings.batch:
                        return found
        return found

    def _is_old(self, alert: ActiveAlert, sent_ms: float, now_ms: int, again_ms: float) -> bool:
        # A webhook hears of an end once; an Alertmanager until the end is forgotten, in case that it restarted.
        ended = alert.state is State.INACTIVE and self.kind != "alertmanager"
        return not ended and now_ms - sent_ms >= again_ms

    def send(
        self, due: Sequence[DueAlert], now_ms: int, names: Callable[[RunningGroup], str], may_send: Callable[[], bool]
    ) -> bool:
        """Send once; after a failure the receiver rests for a while."""
        address = self.url.rstrip("/") + "/api/v2/alerts" if self.kind == "alertmanager" else self.url
        shown = [self._shown(each, now_ms, names(each.group)) for each in due]
        body: Any = shown if self.kind == "alertmanager" else {"version": "1", "alerts": shown}
        crash_point("ruler_before_send")
        if not may_send():
            # The process was suspended: another ruler may have notified the receiver since.
            return False
        try:
            self.post(address, orjson.dumps(body))
        except OSError as error:
            self._failures += 1
            self._retry_at_s = time.monotonic() + _BACKOFF.ceiling_s(self._failures)
            NOTIFICATIONS.labels(self.kind, "failed").inc(len(due))
            log().warning("alerts not sent", receiver=self.kind, host=urlsplit(self.url).hostname, error=str(error))
            return False
        crash_point("ruler_after_send")
        self._failures, self._retry_at_s = 0, 0.0
        NOTIFICATIONS.labels(self.kind, "sent").inc(len(due))
        return True

    @property
    def is_resting(self) -> bool:
        return time.monotonic() < self._retry_at_s

    def _shown(self, each: DueAlert, now_ms: int, org: str) -> dict[str, Any]:
        alert, settings = each.alert, self.settings
        labels = dict(alert.labels)
        if settings.org_label:
            labels[settings.org_label] = org
        interval_s = max(each.group.group.interval_s or settings.interval_s, settings.resend_s)
        ended = alert.resolved_at_ms if alert.state is State.INACTIVE else None
        shown: dict[str, Any] = {
            "labels": labels,
            "annotations": dict(alert.annotations),
            "startsAt": _utc(alert.fired_at_ms or alert.active_at_ms),
            "generatorURL": _link(settings.external_url, each),
        }
        if self.kind == "alertmanager":
            shown["endsAt"] = _utc(round(now_ms + 1000 * _VALID_TIMES * interval_s) if ended is None else ended)
        else:
            shown["status"] = "firing" if ended is None else "resolved"
            shown["endsAt"] = None if ended is None else _utc(ended)
            shown["fingerprint"] = hashed_id(orjson.dumps(sorted(labels.items()))).hex[:16]
        return shown


class Notifier:
    """All receivers. `groups` are those that this process evaluates, `leases` prove it, and `may_send` says whether it
    still believes to hold them: what a ruler says that was suspended could be older than what its successor said.
    """

    def __init__(
        self,
        settings: RulerSettings,
        database: Database,
        groups: Callable[[], list[RunningGroup]],
        names: Callable[[RunningGroup], str],
        leases: Callable[[RunningGroup], Lease | None],
        may_send: Callable[[], bool],
        post: Post | None = None,
    ) -> None:
        self._database = database
        self._groups = groups
        self._names = names
        self._leases = leases
        self._may_send = may_send
        self._lock = threading.Lock()
        #: One receiver at a time stores what was sent. A rule has one row for all of its receivers, and the thread that
        #: writes last must know what the others have sent.
        self._storing = threading.Lock()
        self._in_flight: Counter[GroupKey] = Counter()
        post = post or Poster(
            settings.ca_file,
            settings.cert_file,
            settings.key_file,
            settings.bearer_file,
            settings.basic_user,
            settings.basic_password_file,
        )
        self.receivers = [
            Receiver(kind, address, settings, post)
            for kind, addresses in (
                ("alertmanager", addresses_of(settings.alertmanagers, "ruler.alertmanagers")),
                ("webhook", addresses_of(settings.webhooks, "ruler.webhooks")),
            )
            for address in addresses
        ]
        #: Receiver -> alerts of which it was notified when another ruler had their group, perhaps after that one did.
        self._overtaken: dict[str, list[DueAlert]] = {}
        #: Receiver -> the thread that serves it.
        self._threads: dict[str, threading.Thread] = {}

    def start(self, stop: Stop) -> None:
        """Serve all receivers, each by one thread. A role runs again after an outage: those that run go on."""
        for receiver in self.receivers:
            thread = self._threads.get(receiver.name)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._serve, args=(receiver, stop), name=receiver.name, daemon=True)
                self._threads[receiver.name] = thread
                thread.start()

    def wake(self) -> None:
        """Say that the state of some alerts has changed."""
        for receiver in self.receivers:
            receiver.wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for requests under way. Threads that are idle end at once."""
        self.wake()
        end_s = time.monotonic() + timeout_s
        for thread in self._threads.values():
            thread.join(max(0.0, end_s - time.monotonic()))

    def _serve(self, receiver: Receiver, stop: Stop) -> None:
        while not stop:
            receiver.wake.wait(_LOOK_S)
            receiver.wake.clear()
            try:
                while not stop and self.round(receiver):
                    pass
            except LakeError as error:
                SWALLOWED.labels("ruler_notify").inc()
                log().warning("what was sent to a receiver is not stored", receiver=receiver.kind, error=str(error))

    def _ours(self, due: Sequence[DueAlert]) -> dict[GroupKey, Lease]:
        """The groups whose alerts this ruler may send, with their leases, which it holds now, as the index says."""
        leases = {each.group.key: lease for each in due if (lease := self._leases(each.group)) is not None}
        if not leases:
            return {}
        with self._database.transaction() as tx:
            held = {lease for lease in set(leases.values()) if is_held(tx, lease)}
        return {key: lease for key, lease in leases.items() if lease in held}

    @property
    def in_flight(self) -> set[GroupKey]:
        """Groups whose alerts are being sent. They are neither loaded anew nor given to another ruler meanwhile:
        what was sent is not stored yet.
        """
        with self._lock:
            return set(self._in_flight)

    def round(self, receiver: Receiver, now_ms: int | None = None) -> bool:
        """Send one request if something is due; return whether there may be more."""
        self._have_successors_notify(receiver)
        if receiver.is_resting or not self._may_send():
            return False
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with self._lock:
            found = receiver.due(self._groups(), now_ms)
            keys = {each.group.key for each in found}
            self._in_flight.update(keys)
        try:
            leases = self._ours(found) if found else {}
            return self._send(receiver, [each for each in found if each.group.key in leases], leases, now_ms)
        finally:
            with self._lock:
                self._in_flight.subtract(keys)
                self._in_flight = +self._in_flight

    def _send(self, receiver: Receiver, due: Sequence[DueAlert], leases: Mapping[GroupKey, Lease], now_ms: int) -> bool:
        if not due or not receiver.send(due, now_ms, self._names, self._may_send):
            return False
        with self._storing:
            changed: dict[tuple[int, int], RunningGroup] = {}
            for each in due:
                sent = each.group.sent[each.number].setdefault(receiver.name, {})
                sent[each.name] = [*each.sent, now_ms]
                changed[id(each.group), each.number] = each.group
            lost: Conflict | None = None
            for (_, number), group in changed.items():
                _forget(group, number)
                try:
                    # Under the lease with which it was sent. By now this process may know that it has lost it.
                    group.store_sent(self._database, number, leases[group.key])
                except Conflict as error:
                    mine = [each for each in due if each.group is group and each.number == number]
                    self._overtaken.setdefault(receiver.name, []).extend(mine)
                    lost = error
        if lost is not None:
            self._have_successors_notify(receiver)
            raise lost
        return len(due) >= receiver.settings.batch

    def _have_successors_notify(self, receiver: Receiver) -> None:
        """Only the receiver's own thread comes here. What fails stays for its next round."""
        overtaken = self._overtaken.get(receiver.name, [])
        while overtaken:
            group = overtaken[0].group
            alerts = [(each.number, each.name) for each in overtaken if each.group is group]
            group.notify_again(self._database, receiver.name, alerts)
            overtaken[:] = [each for each in overtaken if each.group is not group]


def _forget(group: RunningGroup, number: int) -> None:
    """Forget what was sent about alerts that are over and gone."""
    names = {alert.labels.to_json().decode() for alert in group.states[number].alerts}
    for sent in group.sent[number].values():
        for name in [name for name in sent if name not in names]:
            del sent[name]


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _link(external_url: str, each: DueAlert) -> str:
    return f"{external_url.rstrip('/')}/graph?g0.expr={quote(each.group.rules[each.number].expr)}&g0.tab=1"
