"""The life of alerts: a problem that holds long enough fires, one that is gone is resolved; each end is announced once.

One instance per process, used by one thread. A notification that a receiver did not take stays due.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lakerunner.serve.admin.conditions import Problem

#: A problem that is away for less than this and comes back is the same alert, so that flapping makes no noise.
_RESOLVE_AFTER_S = 60.0


class State(enum.StrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Notification:
    """What receivers get: an alert began to fire, still fires, or is over."""

    state: State
    problem: Problem
    started_at: datetime
    ended_at: datetime | None = None


@dataclass(slots=True)
class _Alert:
    problem: Problem
    since: datetime
    seen_at: datetime
    fired_at: datetime | None = None


@dataclass(slots=True)
class Alerts:
    """Follows problems over time."""

    _known: dict[object, _Alert] = field(default_factory=dict)

    def update(self, problems: Sequence[Problem], now: datetime) -> list[Notification]:
        """Take in what holds now; return all alerts that fire, and those that ended with this update."""
        for problem in problems:
            alert = self._known.get(problem.identity)
            if alert is None:
                alert = self._known[problem.identity] = _Alert(problem, now, now)
            alert.problem, alert.seen_at = problem, now
            if alert.fired_at is None and (now - alert.since).total_seconds() >= problem.for_s:
                alert.fired_at = now
        current = []
        for identity, alert in list(self._known.items()):
            away_s = (now - alert.seen_at).total_seconds()
            if alert.fired_at is None:
                # It went away before it fired: it begins again.
                if away_s > 0:
                    del self._known[identity]
            elif away_s >= _RESOLVE_AFTER_S:
                del self._known[identity]
                current.append(Notification(State.RESOLVED, alert.problem, alert.since, now))
            else:
                current.append(Notification(State.FIRING, alert.problem, alert.since))
        return current
