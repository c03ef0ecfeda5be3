"""The requests of a slot: who asked for what, when, through which pods, and how long each step took.

Logs, spans and metrics are three views of this one thing, which is why they agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from lakerunner.demo import wire
from lakerunner.demo.journeys import JOURNEYS
from lakerunner.demo.shop import REGIONS, SERVICES, Shop, Slot
from lakerunner.demo.steps import Journey, Step, Variant
from lakerunner.demo.wire import Bytes, Ints
from lakerunner.model.time import NS_PER_S

#: Spread of the logarithm of the time that a step takes.
_SIGMA = 0.45
#: One step in so many meets something slow (a lock, a pause, a cold cache) and takes a multiple with a Pareto tail.
_SLOW_ONE_IN = 300
_SLOW_LEAST = 8.0
_SLOW_SHAPE = 1.1
#: No step takes longer by itself, so no request takes ten seconds.
_OWN_MOST_NS = 2 * NS_PER_S
_TOTAL_MOST_NS = 9_900_000_000
#: How long a message waits for its consumer, at most.
_QUEUE_MOST_NS = 40_000_000

_PRODUCT_COUNT = 64


@cache
def _products() -> Bytes:
    """The ids of the products, ten characters each."""
    letters = np.frombuffer(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789", dtype=np.uint8)
    return letters[np.random.default_rng(7).integers(0, len(letters), (_PRODUCT_COUNT, 10))]


class Columns(dict[str, Bytes]):
    """What varies between the requests of a group, as bytes, made when first asked for."""

    def __init__(self, trace_id: Bytes, dice: Ints) -> None:
        super().__init__(trace_id=trace_id)
        self.dice = dice

    def __missing__(self, name: str) -> Bytes:
        self[name] = column = self._make(name)
        return column

    def _make(self, name: str) -> Bytes:
        dice = self.dice
        match name:
            case "user":
                return wire.digits(10_000 + dice[:, 0] % 90_000, 5)
            case "product":
                # Squared: a few products are what most people look at.
                popularity = ((dice[:, 0] >> 20 & 0xFFFF) / 65_536.0) ** 2
                return _products()[(popularity * _PRODUCT_COUNT).astype(np.int64)]
            case "order":
                return _uuid(self["trace_id"])
            case "amount":
                cents = wire.digits(self.cents, 5)
                return np.insert(cents, 3, ord("."), axis=1)
            case "price":
                return wire.doubles(self.cents / 100.0)
            case "session":
                return wire.hexed(self["trace_id"][:, 4:12])
            case "ip":
                return _address(dice[:, 0])
            case "trace":
                return wire.hexed(self["trace_id"])
            case "count":
                return wire.digits(100 + (dice[:, 1] >> 30) % 900, 3)
            case "size":
                return wire.varint2(128 + (dice[:, 1] >> 12) % 16_000)
        raise KeyError(name)

    @property
    def cents(self) -> Ints:
        """What the order costs."""
        return 10_000 + self.dice[:, 1] % 89_999


def _uuid(raw: Bytes) -> Bytes:
    text = wire.hexed(raw)
    out = np.full((len(raw), 36), ord("-"), dtype=np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        out[:, at : at + end - begin] = text[:, begin:end]
    return out


def _address(dice: Ints) -> Bytes:
    out = np.empty((len(dice), 12), dtype=np.uint8)
    out[:, :5] = np.frombuffer(b"10.2.", dtype=np.uint8)
    out[:, 5:8] = wire.digits(100 + (dice >> 8) % 100, 3)
    out[:, 8] = ord(".")
    out[:, 9:] = wire.digits(100 + (dice >> 16) % 100, 3)
    return out


@dataclass(frozen=True)
class Group:
    """All requests of a slot that went the same way. Arrays are indexed by request, then by step."""

    variant: Variant
    columns: Columns
    span_id: Bytes
    start_ns: Ints
    duration_ns: Ints
    #: By request and service: all steps of a service in a request happen in one pod.
    pod: Ints
    #: The message that set these requests off: trace and span of its sender.
    link: tuple[Bytes, Bytes] | None = None

    @property
    def size(self) -> int:
        return len(self.start_ns)

    @property
    def steps(self) -> Sequence[Step]:
        return self.variant.steps

    def end_ns(self, at: int) -> Ints:
        return self.start_ns[:, at] + self.duration_ns[:, at]


@dataclass(frozen=True)
class Traffic:
    slot: Slot
    groups: tuple[Group, ...]

    @cached_property
    def requests(self) -> int:
        return sum(group.size for group in self.groups)


def traffic(shop: Shop, slot: Slot, requests_per_s: float, earliest_ns: int) -> Traffic:
    """The requests of a slot. None begins before `earliest_ns`."""
    random = shop.random("traffic", slot.start_ns)
    time_s = slot.start_ns / NS_PER_S
    wanted = requests_per_s * slot.seconds * shop.busyness(slot.start_ns)
    shares = [journey.weight * share for journey in JOURNEYS for share in journey.likelihoods(shop, time_s)]
    ways = [(journey, variant) for journey in JOURNEYS for variant in journey.variants]
    counts = random.multinomial(random.poisson(wanted), np.array(shares) / sum(shares)).tolist()
    groups: list[Group] = []
    for way, count in zip(ways, counts, strict=True):
        if count:
            groups.extend(_groups(shop, slot, way, count, random, earliest_ns))
    return Traffic(slot, tuple(groups))


def _groups(
    shop: Shop, slot: Slot, way: tuple[Journey, Variant], count: int, random: np.random.Generator, earliest_ns: int
) -> Iterator[Group]:
    """The group of a variant and those that its messages set off."""
    journey, variant = way
    region = random.integers(0, len(REGIONS), (count, 1))
    pod = random.integers(0, shop.pods // len(REGIONS), (count, len(SERVICES))) * len(REGIONS) + region
    dice = random.integers(0, 1 << 62, (count, 2))
    first = _group(shop, slot, variant, Columns(_ids(random, count, 16), dice), pod, random)
    parts = [(first, np.arange(count))]
    if 0 <= journey.sender < len(variant.steps):
        for follower in journey.followers:
            parts.extend(_following(shop, slot, follower, first, journey.sender, random))
    total_ns = np.zeros(count, dtype=np.int64)
    for group, rows in parts:
        total_ns[rows] = np.maximum(total_ns[rows], group.end_ns(0))
    room_ns = slot.end_ns - slot.start_ns - 1 - total_ns
    # What fits lies wholly in the slot; what is longer ends with it, having begun before, as exporters see spans.
    begin_ns = slot.start_ns + np.where(room_ns > 0, (random.random(count) * room_ns).astype(np.int64), room_ns)
    begin_ns = np.maximum(begin_ns, earliest_ns)
    for group, rows in parts:
        yield replace(group, start_ns=group.start_ns + begin_ns[rows, None])


def _group(shop: Shop, slot: Slot, variant: Variant, columns: Columns, pod: Ints, random: np.random.Generator) -> Group:
    """Requests whose times are still counted from their beginning."""
    count, steps = len(pod), variant.steps
    start_ns, duration_ns = _timing(shop, slot, steps, count, random)
    span_id = _ids(random, count * len(steps), 8).reshape(count, len(steps), 8)
    return Group(variant, columns, span_id, start_ns, duration_ns, pod)


def _following(
    shop: Shop, slot: Slot, follower: Journey, sent: Group, sender: int, random: np.random.Generator
) -> Iterator[tuple[Group, Ints]]:
    """What consumers do with the messages of a group, each in a trace of its own that links to the sender."""
    likelihoods = np.array(follower.likelihoods(shop, slot.start_ns / NS_PER_S))
    way = random.choice(len(likelihoods), sent.size, p=likelihoods / likelihoods.sum())
    arrival_ns = sent.end_ns(sender) + random.integers(0, _QUEUE_MOST_NS, sent.size)
    for at, variant in enumerate(follower.variants):
        rows = np.flatnonzero(way == at)
        if not len(rows):
            continue
        columns = Columns(_ids(random, len(rows), 16), sent.columns.dice[rows])
        # The order's number is made from the customer's trace, and must be the same here.
        columns["order"] = sent.columns["order"][rows]
        group = _group(shop, slot, variant, columns, sent.pod[rows], random)
        link = (sent.columns["trace_id"][rows], sent.span_id[rows, sender])
        yield replace(group, start_ns=group.start_ns + arrival_ns[rows, None], link=link), rows


def _ids(random: np.random.Generator, count: int, width: int) -> Bytes:
    return np.frombuffer(random.bytes(count * width), dtype=np.uint8).reshape(count, width)


def _timing(
    shop: Shop, slot: Slot, steps: Sequence[Step], count: int, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """When each step begins after the request did, and how long it takes: its own time and that of its callees."""
    time_s = slot.start_ns / NS_PER_S
    # A bad release is slow, too.
    median_ns = np.array([step.own_ms * 1e6 * (1.0 + 4.0 * shop.trouble(step.service, time_s)) for step in steps])
    own_ns = median_ns * np.exp(_SIGMA * random.standard_normal((count, len(steps)), dtype=np.float32))
    slow = random.random(own_ns.shape, dtype=np.float32) < 1.0 / _SLOW_ONE_IN
    own_ns[slow] *= _SLOW_LEAST * (1.0 + random.pareto(_SLOW_SHAPE, int(slow.sum())))
    own_ns = np.minimum(own_ns, _OWN_MOST_NS)
    duration_ns = own_ns.copy()
    for at in range(len(steps) - 1, 0, -1):
        duration_ns[:, steps[at].parent] += duration_ns[:, at]
    own_ns *= (squeeze := np.minimum(1.0, _TOTAL_MOST_NS / duration_ns[:, :1]))
    duration_ns *= squeeze
    callees = np.bincount([step.parent + 1 for step in steps], minlength=len(steps) + 1)[1:]
    # A caller spends its own time in equal parts before, between and after its calls.
    pause_ns = own_ns / (callees + 1)
    offset_ns = np.zeros_like(own_ns)
    cursor_ns = pause_ns.copy()
    for at in range(1, len(steps)):
        parent = steps[at].parent
        offset_ns[:, at] = cursor_ns[:, parent]
        cursor_ns[:, at] += offset_ns[:, at]
        cursor_ns[:, parent] += duration_ns[:, at] + pause_ns[:, parent]
    starts = offset_ns.astype(np.int64)
    # Rounded together, so that a child never ends a nanosecond after its parent.
    return starts, (offset_ns + duration_ns).astype(np.int64) - starts
