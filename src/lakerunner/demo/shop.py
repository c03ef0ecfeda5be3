"""The simulated shop: its services, pods, deploys, and load over the day.

Everything is a function of the seed and the time, so any slot can be generated without the slots before it.
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

#: Interval between deploys of a service. Each has its own offset, so the shop has about three deploys per hour.
DEPLOY_PERIOD_S = 4 * 3_600
#: A deploy replaces the pods one after another within this time.
ROLLOUT_S = 120
#: A bad release fails most requests at first; the share of failures falls by a factor of e in this time.
BURST_DECAY_S = 150.0
#: Interval between container restarts in a pod: counters are reset under the same name.
RESTART_PERIOD_S = 7 * 3_600
#: Log records per second and pod, from which the number of pods follows, within bounds.
LOGS_PER_POD = 10.0
MIN_PODS, MAX_PODS = 3, 255
#: Enough records per slot that the fixed cost of a slot (some 20 ms) does not matter.
RECORDS_PER_SLOT = 20_000
SLOTS_S = (1, 2, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    language: str
    #: Share of requests that fail without a bad release.
    failure_rate: float
    #: A StatefulSet keeps the names of its pods across deploys, so its series continue with reset counters.
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
    """A time range that is generated in one go."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S


@dataclass(frozen=True)
class Shop:
    """One shop. `rate` is log records per second, averaged over a day; spans and points follow from it."""

    seed: int
    rate: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise BadInput(f"cannot simulate {self.rate} records per second", hint="use a rate above 0")
        if self.seed < 0:
            raise BadInput(f"cannot use the seed {self.seed}: it is negative", hint="use a seed of 0 or more")

    @cached_property
    def pods(self) -> int:
        """The number of pods of each service, a multiple of the number of regions."""
        wanted = self.rate / LOGS_PER_POD / len(SERVICES)
        bounded = min(max(wanted, MIN_PODS), MAX_PODS)
        return math.ceil(bounded / len(REGIONS)) * len(REGIONS)

    @cached_property
    def slot_s(self) -> int:
        """The length of a slot: the shortest that holds enough records."""
        return next((slot_s for slot_s in SLOTS_S if self.rate * slot_s >= RECORDS_PER_SLOT), SLOTS_S[-1])

    def random(self, purpose: str, time_ns: int) -> np.random.Generator:
        """Return the random generator for one purpose in one slot."""
        return np.random.default_rng([self.seed, self.number(purpose), time_ns])

    def number(self, *parts: object) -> int:
        """Return a hash of the seed and the parts, the same in every process."""
        return xxhash.xxh3_64_intdigest("/".join(map(str, (self.seed, *parts))).encode())

    def share(self, *parts: object) -> float:
        """Return the same hash as a fraction in [0, 1)."""
        return self.number(*parts) / 2.0**64

    def busyness(self, time_ns: int) -> float:
        """Return the load of this minute relative to the daily average: lowest at 4:00, highest at 16:00."""
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
        """Return the time at which a release of a service begins to roll out."""
        return self._deploy_offsets_s[service] + release * DEPLOY_PERIOD_S

    def release(self, service: int, pod: int, time_s: float) -> int:
        """Return the release that a pod runs. Pods with higher numbers get it later."""
        delay_s = ROLLOUT_S * pod / self.pods
        return math.floor((time_s - delay_s - self.deploy_s(service, 0)) / DEPLOY_PERIOD_S)

    def started_s(self, service: int, pod: int, time_s: float) -> int:
        """Return the start time of the process that runs in the pod."""
        rolled_s = self.deploy_s(service, self.release(service, pod, time_s)) + ROLLOUT_S * pod // self.pods
        offset_s = self._restart_offsets_s[service][pod]
        return max(rolled_s, int(time_s - offset_s) // RESTART_PERIOD_S * RESTART_PERIOD_S + offset_s)

    def release_failure_share(self, service: int, time_s: float) -> float:
        """Return the share of requests that fail because of the last release. It decays after the deploy."""
        release = self.release(service, 0, time_s)
        age_s = time_s - self.deploy_s(service, release)
        return (0.03 + 0.27 * self.share("burst", service, release)) * math.exp(-age_s / BURST_DECAY_S)

    def version(self, service: int, release: int) -> str:
        # There are six releases per day: the minor number is the day, the patch number the release of the day.
        day, patch = divmod(release, 6)
        return f"{1 + self.number('major', service) % 4}.{day % 1_000}.{patch}"

    def pod_name(self, service: int, pod: int, release: int) -> str:
        spec = SERVICES[service]
        if spec.stateful:
            return f"{spec.name}-{pod}"
        replica_set = f"{self.number('rs', service, release) % 16**9:09x}"
        return f"{spec.name}-{replica_set}-{self.number('pod', service, release, pod) % 16**5:05x}"

    @cached_property
    def _resources(self) -> dict[tuple[int, int], tuple[int, bytes]]:
        """A cache by service and pod of the latest release and its encoded resource."""
        return {}

    def resource(self, service: int, pod: int, time_s: float) -> bytes:
        """Return the encoded resource of a pod at that time."""
        release = self.release(service, pod, time_s)
        known = self._resources.get((service, pod))
        if known is None or known[0] != release:
            known = self._resources[service, pod] = (release, self._encode_resource(service, pod, release))
        return known[1]

    def _encode_resource(self, service: int, pod: int, release: int) -> bytes:
        spec, name = SERVICES[service], self.pod_name(service, pod, release)
        region = REGIONS[pod % len(REGIONS)]
        node = self.number("node", service, pod) % 60
        workload = "statefulset" if spec.stateful else "deployment"
        pairs: Sequence[wire.Attribute] = (
            ("service.name", spec.name),
            ("service.namespace", NAMESPACE),
            ("service.version", self.version(service, release)),
            ("service.instance.id", f"{NAMESPACE}.{name}.{spec.name}"),
            ("deployment.environment", "production"),
            ("cloud.provider", "aws"),
            ("cloud.region", region),
            ("cloud.availability_zone", f"{region}{'abc'[node % 3]}"),
            ("host.name", f"ip-10-{pod % len(REGIONS)}-{node // 8}-{10 + node}.{region}.compute.internal"),
            ("k8s.cluster.name", f"{NAMESPACE}-{region}"),
            ("k8s.namespace.name", NAMESPACE),
            (f"k8s.{workload}.name", spec.name),
            ("k8s.pod.name", name),
            ("k8s.container.name", spec.name),
            ("telemetry.sdk.name", "opentelemetry"),
            ("telemetry.sdk.language", spec.language),
            ("telemetry.sdk.version", "1.40.0"),
        )
        encoded: bytes = Resource(attributes=wire.attributes(pairs)).SerializeToString()
        return encoded
