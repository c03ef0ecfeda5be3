"""Generate the requests of a slot: which journey, when, through which pods, and how long each step took.

Logs, spans and metrics are all derived from these requests, so they agree.
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

#: Standard deviation of the logarithm of a step's duration.
_SIGMA = 0.45
#: One step in this many meets something slow (a lock, a pause, a cold cache) and takes a Pareto-distributed multiple.
_SLOW_ONE_IN = 300
_SLOW_LEAST = 8.0
_SLOW_SHAPE = 1.1
#: Maximum duration of a step itself and of a whole request, which must stay below ten seconds.
_OWN_MOST_NS = 2 * NS_PER_S
_TOTAL_MOST_NS = 9_900_000_000
#: Maximum time that a message waits for its consumer.
_QUEUE_MOST_NS = 40_000_000

_PRODUCT_COUNT = 64


@cache
def _products() -> Bytes:
    """Return the ids of the products, ten characters each."""
    letters = np.frombuffer(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789", dtype=np.uint8)
    return letters[np.random.default_rng(7).integers(0, len(letters), (_PRODUCT_COUNT, 10))]


class Columns(dict[str, Bytes]):
    """The values that vary between the requests of a group, as bytes. A column is computed on first access."""

    def __init__(self, trace_id: Bytes, random_bits: Ints) -> None:
        super().__init__(trace_id=trace_id)
        self.random_bits = random_bits

    def __missing__(self, name: str) -> Bytes:
        self[name] = column = self._make(name)
        return column

    def _make(self, name: str) -> Bytes:
        random_bits = self.random_bits
        match name:
            case "user":
                return wire.digits(10_000 + random_bits[:, 0] % 90_000, 5)
            case "product":
                # Squared, so that a few products get most of the views.
                popularity = ((random_bits[:, 0] >> 20 & 0xFFFF) / 65_536.0) ** 2
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
                return _address(random_bits[:, 0])
            case "trace":
                return wire.hexed(self["trace_id"])
            case "count":
                return wire.digits(100 + (random_bits[:, 1] >> 30) % 900, 3)
            case "size":
                return wire.varint2(128 + (random_bits[:, 1] >> 12) % 16_000)
        raise KeyError(name)

    @property
    def cents(self) -> Ints:
        """What the order costs."""
        return 10_000 + self.random_bits[:, 1] % 89_999


def _uuid(raw: Bytes) -> Bytes:
    text = wire.hexed(raw)
    out = np.full((len(raw), 36), ord("-"), dtype=np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        out[:, at : at + end - begin] = text[:, begin:end]
    return out


def _address(random_bits: Ints) -> Bytes:
    out = np.empty((len(random_bits), 12), dtype=np.uint8)
    out[:, :5] = np.frombuffer(b"10.2.", dtype=np.uint8)
    out[:, 5:8] = wire.digits(100 + (random_bits >> 8) % 100, 3)
    out[:, 8] = ord(".")
    out[:, 9:] = wire.digits(100 + (random_bits >> 16) % 100, 3)
    return out


@dataclass(frozen=True)
class Group:
    """All requests of a slot with the same variant. Arrays are indexed by request, then by step."""

    variant: Variant
    columns: Columns
    span_id: Bytes
    start_ns: Ints
    duration_ns: Ints
    #: By request and service: all steps of a service in one request run in the same pod.
    pod: Ints
    #: Trace and span id of the sender of the message that triggered these requests.
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
    """Generate the requests of a slot. None begins before `earliest_ns`."""
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
    """Yield the group of a variant and the groups that its messages trigger."""
    journey, variant = way
    region = random.integers(0, len(REGIONS), (count, 1))
    pod = random.integers(0, shop.pods // len(REGIONS), (count, len(SERVICES))) * len(REGIONS) + region
    random_bits = random.integers(0, 1 << 62, (count, 2))
    first = _group(shop, slot, variant, Columns(_ids(random, count, 16), random_bits), pod, random)
    parts = [(first, np.arange(count))]
    if 0 <= journey.sender < len(variant.steps):
        for follower in journey.followers:
            parts.extend(_following(shop, slot, follower, first, journey.sender, random))
    total_ns = np.zeros(count, dtype=np.int64)
    for group, rows in parts:
        total_ns[rows] = np.maximum(total_ns[rows], group.end_ns(0))
    room_ns = slot.end_ns - slot.start_ns - 1 - total_ns
    # A request that fits lies entirely in the slot. A longer one ends with the slot and begins before it.
    begin_ns = slot.start_ns + np.where(room_ns > 0, (random.random(count) * room_ns).astype(np.int64), room_ns)
    begin_ns = np.maximum(begin_ns, earliest_ns)
    for group, rows in parts:
        yield replace(group, start_ns=group.start_ns + begin_ns[rows, None])


def _group(shop: Shop, slot: Slot, variant: Variant, columns: Columns, pod: Ints, random: np.random.Generator) -> Group:
    """Generate requests with times relative to their own start."""
    count, steps = len(pod), variant.steps
    start_ns, duration_ns = _timing(shop, slot, steps, count, random)
    span_id = _ids(random, count * len(steps), 8).reshape(count, len(steps), 8)
    return Group(variant, columns, span_id, start_ns, duration_ns, pod)


def _following(
    shop: Shop, slot: Slot, follower: Journey, sent: Group, sender: int, random: np.random.Generator
) -> Iterator[tuple[Group, Ints]]:
    """Generate the consumers of a group's messages, each in its own trace that links to the sender."""
    likelihoods = np.array(follower.likelihoods(shop, slot.start_ns / NS_PER_S))
    way = random.choice(len(likelihoods), sent.size, p=likelihoods / likelihoods.sum())
    arrival_ns = sent.end_ns(sender) + random.integers(0, _QUEUE_MOST_NS, sent.size)
    for at, variant in enumerate(follower.variants):
        rows = np.flatnonzero(way == at)
        if not len(rows):
            continue
        columns = Columns(_ids(random, len(rows), 16), sent.columns.random_bits[rows])
        # The order id derives from the customer's trace, and must be the same here.
        columns["order"] = sent.columns["order"][rows]
        group = _group(shop, slot, variant, columns, sent.pod[rows], random)
        link = (sent.columns["trace_id"][rows], sent.span_id[rows, sender])
        yield replace(group, start_ns=group.start_ns + arrival_ns[rows, None], link=link), rows


def _ids(random: np.random.Generator, count: int, width: int) -> Bytes:
    return np.frombuffer(random.bytes(count * width), dtype=np.uint8).reshape(count, width)


def _timing(
    shop: Shop, slot: Slot, steps: Sequence[Step], count: int, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the start of each step relative to the request, and its duration including its callees."""
    time_s = slot.start_ns / NS_PER_S
    # A bad release is also slow.
    median_ns = np.array(
        [step.own_ms * 1e6 * (1.0 + 4.0 * shop.release_failure_share(step.service, time_s)) for step in steps]
    )
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
    # Start and end are rounded together, so that a child never ends a nanosecond after its parent.
    return starts, (offset_ns + duration_ns).astype(np.int64) - starts
