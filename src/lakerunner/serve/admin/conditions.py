"""The conditions that deserve an alert: pure functions from an observation to the problems that it shows.

docs/runbook.md has a heading for each name, and deploy/prometheus/rules.yaml has the same conditions for Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lakerunner.index.objectives import FRESHNESS, QUERY_LATENCY, Burn
from lakerunner.runtime.settings import CanarySettings, MonitorSettings
from lakerunner.serve.admin.observation import Observation

PAGE, TICKET = "page", "ticket"
#: The roles of which one process must lead.
_LED = ("relay", "sweeper")
_OUTBOX_S = 60.0
#: An objective alerts when both windows burn faster: the short one makes the alert end soon after the trouble does.
#: 14.4 uses up 2% of a month's allowance in an hour, 6 uses up 5% in six hours, 1 uses up 10% in three days.
_BURNS = ((3_600, 300, 14.4, PAGE), (21_600, 1_800, 6.0, PAGE), (259_200, 21_600, 1.0, TICKET))


@dataclass(frozen=True, slots=True)
class Problem:
    """A condition that holds. Name and labels identify it; the summary may change while it holds."""

    name: str
    severity: str
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    #: How long it must hold before it is an alert.
    for_s: float = 0.0

    @property
    def identity(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.name, tuple(sorted(self.labels.items()))


def problems(seen: Observation, monitor: MonitorSettings, canary: CanarySettings) -> list[Problem]:
    """All conditions that hold now."""
    found = [problem for condition in CONDITIONS for problem in condition(seen, monitor)]
    return found + list(_canary(seen, canary))


def _degraded(seen: Observation, _: MonitorSettings) -> Iterator[Problem]:
    if seen.index.degraded:
        parts = ", ".join(seen.index.degraded)
        yield Problem("LakerunnerIndexSlow", TICKET, f"The index did not return in time: {parts}.", for_s=60)


def _outbox(seen: Observation, _: MonitorSettings) -> Iterator[Problem]:
    outbox = seen.index.outbox
    if outbox is not None and outbox.oldest_s > _OUTBOX_S:
        yield Problem(
            "LakerunnerOutboxStuck",
            PAGE,
            f"{outbox.count} messages wait to be published, one for {outbox.oldest_s:.0f} s.",
        )


def _leaders(seen: Observation, _: MonitorSettings) -> Iterator[Problem]:
    for role in _LED:
        if seen.index.leaders is not None and role not in seen.index.leaders:
            yield Problem("LakerunnerNoLeader", PAGE, f"No process leads as {role}.", {"role": role}, for_s=60)


def _stages(seen: Observation, settings: MonitorSettings) -> Iterator[Problem]:
    for each in seen.index.stages or ():
        if each.oldest_s > settings.stuck_s:
            yield Problem(
                "LakerunnerStageStuck", PAGE, f"A work item of {each.stage} has been open for {each.oldest_s:.0f} s; "
                f"{each.open} are open.", {"stage": each.stage},
            )  # fmt: skip


def _objects(seen: Observation, settings: MonitorSettings) -> Iterator[Problem]:
    for each in seen.index.signals or ():
        if each.oldest_waiting_s > settings.stuck_s:
            summary = f"A raw object of {each.signal} has waited for {each.oldest_waiting_s:.0f} s."
            yield Problem("LakerunnerObjectsWaiting", PAGE, summary, {"signal": each.signal})


def _tiers(seen: Observation, settings: MonitorSettings) -> Iterator[Problem]:
    for each in seen.index.tiers or ():
        if each.lag_s > settings.tier_lag_s:
            yield Problem(
                "LakerunnerTierLag", TICKET, f"The tier of {each.tier_s} s lags {each.lag_s:.0f} s behind; "
                f"{each.windows} windows wait.", {"tier_s": str(each.tier_s)},
            )  # fmt: skip


def _dead(seen: Observation, _: MonitorSettings) -> Iterator[Problem]:
    if seen.dead_letters:
        yield Problem("LakerunnerDeadLetters", TICKET, f"{seen.dead_letters} messages are dead letters.")


def _bucket(seen: Observation, settings: MonitorSettings) -> Iterator[Problem]:
    if seen.bucket is None:
        return
    if seen.bucket.error:
        yield Problem("LakerunnerBucketDown", PAGE, f"The bucket does not answer: {seen.bucket.error}", for_s=30)
    elif seen.bucket.seconds > settings.bucket_slow_s:
        yield Problem(
            "LakerunnerBucketSlow",
            TICKET,
            f"A small request to the bucket took {seen.bucket.seconds:.1f} s.",
            for_s=120,
        )


def _objectives(seen: Observation, settings: MonitorSettings) -> Iterator[Problem]:
    burns = {(burn.objective, burn.window_s): burn for burn in seen.index.burns or ()}
    for objective, share, name in (
        (FRESHNESS, settings.freshness_share, "LakerunnerFreshnessBurn"),
        (QUERY_LATENCY, settings.query_share, "LakerunnerQueryLatencyBurn"),
    ):
        for long_s, short_s, limit, severity in _BURNS:
            rates = [
                burns.get((objective, width), Burn(objective, width, 0, 0)).rate(share) for width in (long_s, short_s)
            ]
            if min(rates) > limit:
                summary = (
                    f"{objective} burns its error budget {rates[0]:.1f} times too fast over {long_s // 60} minutes, "
                    f"and {rates[1]:.1f} times over {short_s // 60}."
                )
                yield Problem(name, severity, summary, {"window_s": str(long_s)})


def _canary(seen: Observation, settings: CanarySettings) -> Iterator[Problem]:
    for each in seen.index.canary or ():
        labels = {"signal": each.signal}
        if each.lost:
            yield Problem("LakerunnerCanaryLost", PAGE, f"{each.lost} known rows of {each.signal} are gone.", labels)
        if each.doubled:
            summary = f"{each.doubled} known rows of {each.signal} are there more than once."
            yield Problem("LakerunnerCanaryDoubled", PAGE, summary, labels)
        if each.waiting_s > settings.timeout_s:
            summary = f"Known rows of {each.signal} could not be queried for {each.waiting_s:.0f} s."
            yield Problem("LakerunnerCanaryLate", PAGE, summary, labels)


#: Each yields the problems of one kind.
CONDITIONS: tuple[Callable[[Observation, MonitorSettings], Iterator[Problem]], ...] = (
    _degraded, _outbox, _leaders, _stages, _objects, _tiers, _dead, _bucket, _objectives,
)  # fmt: skip
