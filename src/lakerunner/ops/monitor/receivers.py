"""Where alerts go: webhooks and Alertmanagers. Each receiver is served on its own, and tried again when it fails.

A webhook is notified when an alert begins, every `monitor.repeat_s` while it fires, and when it ends. Alertmanager gets
all firing alerts again and again, as its API asks: it resolves those that it no longer hears of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import orjson

from lakerunner.ops.monitor.alerts import Notification, State
from lakerunner.ops.monitor.gauges import ALERTS_SENT
from lakerunner.runtime.http_post import Post, Poster, addresses_of
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import MonitorSettings
from lakerunner.runtime.telemetry import log

_BACKOFF = Backoff(base_s=2.0, cap_s=120.0)
#: Alertmanager is notified this often, and resolves an alert of which it hears nothing for the longer time.
_RESEND_S, _VALID_S = 60.0, 240.0
#: Endings that a receiver has not taken yet; the oldest are dropped. A receiver that is down for long has missed them.
_MAX_PENDING = 1_000
_RUNBOOK = "docs/runbook.md"


@dataclass(slots=True)
class Receiver:
    """One address. Remembers what was sent there, so that nothing is sent twice."""

    kind: str
    url: str
    settings: MonitorSettings
    post: Post
    #: When each firing alert was last sent.
    _sent_at: dict[object, datetime] = field(default_factory=dict)
    _endings: list[Notification] = field(default_factory=list)
    _failures: int = 0
    _retry_at: datetime | None = None

    def send(self, current: Sequence[Notification], now: datetime) -> None:
        """Send what this receiver does not know yet. After a failure it is tried again later, with everything."""
        for each in current:
            if each.state is State.RESOLVED and each.problem.identity in self._sent_at:
                self._endings.append(each)
        del self._endings[:-_MAX_PENDING]
        if self._retry_at is not None and now < self._retry_at:
            return
        again_s = _RESEND_S if self.kind == "alertmanager" else self.settings.repeat_s
        due = [
            each
            for each in current
            if each.state is State.FIRING and _passed(self._sent_at.get(each.problem.identity), now, again_s)
        ] + self._endings
        if not due:
            return
        try:
            self.post(self._address(), orjson.dumps(self._body(due, now)))
        except OSError as error:
            self._failures += 1
            self._retry_at = now + timedelta(seconds=_BACKOFF.ceiling_s(self._failures))
            ALERTS_SENT.labels(self.kind, "failed").inc()
            # Without the address: a webhook's address is a secret.
            log().warning("alerts not sent", receiver=self.kind, host=urlsplit(self.url).hostname, error=str(error))
            return
        self._failures, self._retry_at = 0, None
        ALERTS_SENT.labels(self.kind, "sent").inc()
        for each in due:
            if each.state is State.FIRING:
                self._sent_at[each.problem.identity] = now
            else:
                self._sent_at.pop(each.problem.identity, None)
        self._endings.clear()

    def _address(self) -> str:
        return self.url.rstrip("/") + "/api/v2/alerts" if self.kind == "alertmanager" else self.url

    def _body(self, due: Sequence[Notification], now: datetime) -> Any:
        if self.kind == "alertmanager":
            return [self._alert(each, now) for each in due]
        return {"version": "1", "deployment": self.settings.deployment, "alerts": [self._as_json(each) for each in due]}

    def _alert(self, each: Notification, now: datetime) -> dict[str, Any]:
        """As Alertmanager's API v2 wants it."""
        return {
            "labels": self._labels(each),
            "annotations": {"summary": each.problem.summary, "runbook": _runbook(each)},
            "startsAt": each.started_at.isoformat(),
            "endsAt": (each.ended_at or now + timedelta(seconds=_VALID_S)).isoformat(),
        }

    def _as_json(self, each: Notification) -> dict[str, Any]:
        return {
            "status": each.state.value,
            "labels": self._labels(each),
            "annotations": {"summary": each.problem.summary, "runbook": _runbook(each)},
            "startsAt": each.started_at.isoformat(),
            "endsAt": each.ended_at.isoformat() if each.ended_at else None,
        }

    def _labels(self, each: Notification) -> dict[str, str]:
        problem = each.problem
        own = {"alertname": problem.name, "severity": problem.severity, "deployment": self.settings.deployment}
        return {**problem.labels, **own}


def receivers_of(settings: MonitorSettings, post: Post | None = None) -> list[Receiver]:
    """The receivers of the settings."""
    return [
        Receiver(kind, address, settings, post or Poster())
        for kind, addresses in (
            ("webhook", addresses_of(settings.webhooks, "monitor.webhooks")),
            ("alertmanager", addresses_of(settings.alertmanagers, "monitor.alertmanagers")),
        )
        for address in addresses
    ]


def _passed(at: datetime | None, now: datetime, seconds: float) -> bool:
    return at is None or (now - at).total_seconds() >= seconds


def _runbook(each: Notification) -> str:
    return f"{_RUNBOOK}#{each.problem.name.lower()}"
