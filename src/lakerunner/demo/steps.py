"""A journey flattened into steps, one a span, with a variant for every place where it may fail.

Parents come before children. A failing variant is cut off after the failing step, and the failure is carried up to
the first caller that can do without the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakerunner.demo.calls import Call, Fault, Kind
from lakerunner.demo.shop import INDEX, SERVICES, Shop
from lakerunner.demo.wire import Attribute

#: What the network adds on the caller's side.
_NETWORK_MS = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One span of every request on a journey. Compared by identity: it is a key many times a slot."""

    service: int
    name: str
    kind: Kind
    own_ms: float
    attributes: tuple[Attribute, ...]
    protocol: str
    #: Index of the caller's step, -1 at the root.
    parent: int
    #: Index after the last step within it.
    end: int
    fault: Fault | None = None
    optional: bool = False
    #: The failure seen here: its own when `failed_here`, else one that came up from a callee.
    failure: Fault | None = None
    failed_here: bool = False

    @property
    def is_error(self) -> bool:
        """What the customer got wrong is no error of the server, as the semantic conventions have it."""
        return self.failure is not None and not (self.failure.customers and self.kind is Kind.SERVER)

    @property
    def status(self) -> int:
        """HTTP status or gRPC status code."""
        if self.protocol == "http":
            return self.failure.http_status if self.failure else 200
        return self.failure.rpc_status if self.failure else 0


@dataclass(frozen=True, slots=True)
class Variant:
    """A journey that goes well, or fails in one place."""

    steps: tuple[Step, ...]
    cause: Step | None = None

    def likelihood(self, shop: Shop, time_s: float) -> float:
        """Share of the journey's requests that fail this way; 0 for the good variant, which gets the rest."""
        if self.cause is None or self.cause.failure is None:
            return 0.0
        failure = self.cause.failure
        if failure.customers:
            return failure.weight
        service = self.cause.service
        return failure.weight * (SERVICES[service].failure_rate + 0.5 * shop.trouble(service, time_s))


@dataclass(frozen=True, slots=True)
class Journey:
    """All ways that it can go (the first is the good one), and what it sets off."""

    #: Share of all requests.
    weight: float
    variants: tuple[Variant, ...]
    #: The step whose message sets off the followers, each in a trace of its own.
    sender: int = -1
    followers: tuple[Journey, ...] = ()

    def likelihoods(self, shop: Shop, time_s: float) -> list[float]:
        """Of each variant, given that the journey is made."""
        failing = [variant.likelihood(shop, time_s) for variant in self.variants]
        # However bad a release, some requests come through.
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
    """Append the call and what it calls; a call to another service is a step on both sides."""
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
    """The variant in which that step fails."""
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
