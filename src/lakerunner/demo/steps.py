"""Flatten a journey into steps, one per span, with a variant for every step that may fail.

Parents come before children. A failing variant ends after the failing step. The failure propagates up to the first
caller that can do without the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakerunner.demo.calls import Call, Fault, Kind
from lakerunner.demo.shop import INDEX, SERVICES, Shop
from lakerunner.demo.wire import Attribute

#: Network time, added to the caller's span.
_NETWORK_MS = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One span of every request of a journey. Compared by identity, because it is a key many times per slot."""

    service: int
    name: str
    kind: Kind
    own_ms: float
    attributes: tuple[Attribute, ...]
    protocol: str
    #: Index of the caller's step; -1 for the root.
    parent: int
    #: Index after the last step below this one.
    end: int
    fault: Fault | None = None
    optional: bool = False
    #: The failure of this step: its own if `failed_here`, else that of a callee.
    failure: Fault | None = None
    failed_here: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the span is an error. By the semantic conventions, a customer's mistake is no server error."""
        return self.failure is not None and not (self.failure.customers and self.kind is Kind.SERVER)

    @property
    def status(self) -> int:
        """HTTP status or gRPC status code."""
        if self.protocol == "http":
            return self.failure.http_status if self.failure else 200
        return self.failure.rpc_status if self.failure else 0


@dataclass(frozen=True, slots=True)
class Variant:
    """A journey that succeeds, or fails at one step."""

    steps: tuple[Step, ...]
    cause: Step | None = None

    def likelihood(self, shop: Shop, time_s: float) -> float:
        """Return the share of the journey's requests that fail this way; 0 for the success, which gets the rest."""
        if self.cause is None or self.cause.failure is None:
            return 0.0
        failure = self.cause.failure
        if failure.customers:
            return failure.weight
        service = self.cause.service
        return failure.weight * (SERVICES[service].failure_rate + 0.5 * shop.release_failure_share(service, time_s))


@dataclass(frozen=True, slots=True)
class Journey:
    """All variants of a journey, the successful one first, and the journeys that its message triggers."""

    #: Share of all requests.
    weight: float
    variants: tuple[Variant, ...]
    #: The step whose message triggers the followers, each in its own trace.
    sender: int = -1
    followers: tuple[Journey, ...] = ()

    def likelihoods(self, shop: Shop, time_s: float) -> list[float]:
        """Return the probability of each variant."""
        failing = [variant.likelihood(shop, time_s) for variant in self.variants]
        # Even with the worst release, one request in ten succeeds.
        scale = min(1.0, 0.9 / max(sum(failing), 1e-9))
        scaled = [share * scale for share in failing]
        scaled[0] = 1.0 - sum(scaled)
        return scaled


def journey(weight: float, call: Call, sets_off: tuple[Call, ...] = ()) -> Journey:
    steps: list[Step] = []
    _append(call, -1, -1, steps)
    good = tuple(steps)
    bad = tuple(_failing(good, at) for at, step in enumerate(good) if step.fault is not None)
    sender = next((at for at, step in enumerate(good) if step.kind is Kind.PRODUCER), -1)
    return Journey(weight, (Variant(good), *bad), sender, tuple(journey(1.0, follower) for follower in sets_off))


def _append(call: Call, caller: int, parent: int, steps: list[Step]) -> None:
    """Append the call and the calls below it. A call to another service is a step on both sides."""
    service = INDEX[call.service] if call.service else caller
    at = len(steps)
    if call.kind is Kind.SERVER and parent >= 0:
        client = Step(
            caller, call.name, Kind.CLIENT, _NETWORK_MS, call.attributes, call.protocol, parent, 0, None, call.optional
        )
        steps.append(client)
        _append_here(call, service, at, steps)
        steps[at] = replace(client, end=len(steps))
    else:
        _append_here(call, service, parent, steps)


def _append_here(call: Call, service: int, parent: int, steps: list[Step]) -> None:
    at = len(steps)
    step = Step(service, call.name, call.kind, call.own_ms, call.attributes, call.protocol, parent, 0, call.fault)
    steps.append(step)
    for callee in call.calls:
        _append(callee, service, at, steps)
    steps[at] = replace(step, end=len(steps))


def _failing(good: tuple[Step, ...], at: int) -> Variant:
    """Return the variant in which that step fails."""
    failure = good[at].fault
    touched = [at]
    while not good[touched[-1]].optional and good[touched[-1]].parent >= 0:
        touched.append(good[touched[-1]].parent)
    coped = good[touched[-1]].optional
    kept = len(good) if coped else good[at].end
    steps = tuple(
        replace(step, end=min(step.end, kept), failure=failure if place in touched else None, failed_here=place == at)
        for place, step in enumerate(good[:kept])
    )
    return Variant(steps, steps[at])
