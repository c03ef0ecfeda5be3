"""The shop: its services, their pods, when they are deployed, and how busy the day is.

All of it is a function of the seed and the time, so any slot of time can be made without those before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xxhash
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lakerunner.demo import wire
from lakerunner.model.errors import BadInput
from lakerunner.model.time import NS_PER_S

NAMESPACE = "shop"
REGIONS = ("eu-west-1", "us-east-1", "ap-southeast-2")

#: Every service is deployed this often, at an hour of its own: some three deploys an hour over the shop.
DEPLOY_PERIOD_S = 4 * 3_600
#: Pods are replaced one after another within this time.
ROLLOUT_S = 120
#: A bad release hurts most at first; the share of failures falls by e in this time.
BURST_DECAY_S = 150.0
#: A container is restarted in its pod this often: its counters begin anew under the same name.
RESTART_PERIOD_S = 7 * 3_600
#: The logs that one pod writes in a second before the shop adds another, within bounds.
LOGS_PER_POD = 10.0
MIN_PODS, MAX_PODS = 3, 255
#: Enough records in a slot that the cost of a slot (some 20 ms) is spread thin.
RECORDS_PER_SLOT = 20_000
SLOTS_S = (1, 2, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    language: str
    #: Share of its requests that fail on an ordinary day.
    failure_rate: float
    #: A StatefulSet keeps its pods' names over a deploy, so its series live on and their counters are reset.
    stateful: bool = False


SERVICES: tuple[Service, ...] = (
    Service("frontend", "nodejs", 0.0010),
    Service("cart", "dotnet", 0.0020, stateful=True),
    Service("checkout", "go", 0.0030),
    Service("payment", "java", 0.0060),
    Service("catalogue", "go", 0.0010),
    Service("search", "java", 0.0025),
    Service("recommendations", "python", 0.0080),
    Service("inventory", "go", 0.0015, stateful=True),
    Service("shipping", "rust", 0.0020),
    Service("email", "ruby", 0.0100),
    Service("auth", "go", 0.0010),
    Service("orders", "java", 0.0020, stateful=True),
)
INDEX = {service.name: at for at, service in enumerate(SERVICES)}


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of time that is made at once."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S


@dataclass(frozen=True)
class Shop:
    """One shop: `rate` is the log records in a second, averaged over a day; spans and points follow from it."""

    seed: int
    rate: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise BadInput(f"cannot open a shop with {self.rate} records a second", hint="give a rate above 0")
        if self.seed < 0:
            raise BadInput(f"cannot seed a shop with {self.seed}", hint="give a seed of 0 or more")

    @cached_property
    def pods(self) -> int:
        """Pods of each service, the same number in every region."""
        wanted = self.rate / LOGS_PER_POD / len(SERVICES)
        bounded = min(max(wanted, MIN_PODS), MAX_PODS)
        return math.ceil(bounded / len(REGIONS)) * len(REGIONS)

    @cached_property
    def slot_s(self) -> int:
        """How long a slot should be for the work on it to be worth its while."""
        return next((slot_s for slot_s in SLOTS_S if self.rate * slot_s >= RECORDS_PER_SLOT), SLOTS_S[-1])

    def random(self, purpose: str, time_ns: int) -> np.random.Generator:
        """The dice for one purpose in one slot."""
        return np.random.default_rng([self.seed, self.number(purpose), time_ns])

    def number(self, *parts: object) -> int:
        """A number that depends on the seed and these parts only, in every process."""
        return xxhash.xxh3_64_intdigest("/".join(map(str, (self.seed, *parts))).encode())

    def share(self, *parts: object) -> float:
        """The same as a fraction from 0 up to 1."""
        return self.number(*parts) / 2.0**64

    def busyness(self, time_ns: int) -> float:
        """How this minute compares to the average of the day: quiet around 4, busy around 16 o'clock."""
        hours = time_ns / NS_PER_S / 3_600 % 24
        minute = time_ns // (60 * NS_PER_S)
        return (1.0 - 0.55 * math.cos((hours - 4.0) / 24 * 2 * math.pi)) * (0.95 + 0.1 * self.share("minute", minute))

    @cached_property
    def _deploy_offsets_s(self) -> list[int]:
        return [self.number("deploy", service) % DEPLOY_PERIOD_S for service in range(len(SERVICES))]

    @cached_property
    def _restart_offsets_s(self) -> list[list[int]]:
        return [
            [self.number("restart", service, pod) % RESTART_PERIOD_S for pod in range(self.pods)]
            for service in range(len(SERVICES))
        ]

    def deploy_s(self, service: int, release: int) -> int:
        """When that release of a service begins to roll out."""
        return self._deploy_offsets_s[service] + release * DEPLOY_PERIOD_S

    def release(self, service: int, pod: int, time_s: float) -> int:
        """The release that a pod runs; later pods get it later."""
        delay_s = ROLLOUT_S * pod / self.pods
        return math.floor((time_s - delay_s - self.deploy_s(service, 0)) / DEPLOY_PERIOD_S)

    def started_s(self, service: int, pod: int, time_s: float) -> int:
        """Since when the process that now runs in the pod has run."""
        rolled_s = self.deploy_s(service, self.release(service, pod, time_s)) + ROLLOUT_S * pod // self.pods
        offset_s = self._restart_offsets_s[service][pod]
        return max(rolled_s, int(time_s - offset_s) // RESTART_PERIOD_S * RESTART_PERIOD_S + offset_s)

    def trouble(self, service: int, time_s: float) -> float:
        """How bad the last release is at this time: the share of requests that it fails, soon after it came."""
        release = self.release(service, 0, time_s)
        age_s = time_s - self.deploy_s(service, release)
        return (0.03 + 0.27 * self.share("burst", service, release)) * math.exp(-age_s / BURST_DECAY_S)

    def version(self, service: int, release: int) -> str:
        # Six releases a day: the minor number is the day, the patch its release.
        day, patch = divmod(release, 6)
        return f"{1 + self.number('major', service) % 4}.{day % 1_000}.{patch}"

    def pod_name(self, service: int, pod: int, release: int) -> str:
        made = SERVICES[service]
        if made.stateful:
            return f"{made.name}-{pod}"
        replica_set = f"{self.number('rs', service, release) % 16**9:09x}"
        return f"{made.name}-{replica_set}-{self.number('pod', service, release, pod) % 16**5:05x}"

    @cached_property
    def _resources(self) -> dict[tuple[int, int], tuple[int, bytes]]:
        """By service and pod: the release last asked for and its encoding. A past release is not kept."""
        return {}

    def resource(self, service: int, pod: int, time_s: float) -> bytes:
        """The encoded resource of a pod at that time."""
        release = self.release(service, pod, time_s)
        known = self._resources.get((service, pod))
        if known is None or known[0] != release:
            known = self._resources[service, pod] = (release, self._encode_resource(service, pod, release))
        return known[1]

    def _encode_resource(self, service: int, pod: int, release: int) -> bytes:
        made, name = SERVICES[service], self.pod_name(service, pod, release)
        region = REGIONS[pod % len(REGIONS)]
        node = self.number("node", service, pod) % 60
        workload = "statefulset" if made.stateful else "deployment"
        pairs: Sequence[wire.Attribute] = (
            ("service.name", made.name),
            ("service.namespace", NAMESPACE),
            ("service.version", self.version(service, release)),
            ("service.instance.id", f"{NAMESPACE}.{name}.{made.name}"),
            ("deployment.environment", "production"),
            ("cloud.provider", "aws"),
            ("cloud.region", region),
            ("cloud.availability_zone", f"{region}{'abc'[node % 3]}"),
            ("host.name", f"ip-10-{pod % len(REGIONS)}-{node // 8}-{10 + node}.{region}.compute.internal"),
            ("k8s.cluster.name", f"{NAMESPACE}-{region}"),
            ("k8s.namespace.name", NAMESPACE),
            (f"k8s.{workload}.name", made.name),
            ("k8s.pod.name", name),
            ("k8s.container.name", made.name),
            ("telemetry.sdk.name", "opentelemetry"),
            ("telemetry.sdk.language", made.language),
            ("telemetry.sdk.version", "1.40.0"),
        )
        encoded: bytes = Resource(attributes=wire.attributes(pairs)).SerializeToString()
        return encoded
