"""Health over HTTP: liveness, readiness with the reason when not ready, and metrics; the same for every role."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Metric, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import ROLE_READY
from lakerunner.runtime.role import Probe
from lakerunner.runtime.stop import Stop

#: How often a dependency is probed: often while it does not answer, so that it is used soon after it is back.
PROBE_INTERVAL_S, PROBE_HEALTHY_S = 1.0, 3.0
#: A probe that takes longer hangs: the dependency accepts connections but does not answer.
PROBE_STALE_S = 8.0

log = structlog.get_logger("lakerunner.health")


@dataclass
class Check:
    """What is known of one dependency. Written by its prober."""

    #: Why it does not answer; empty if it does.
    reason: str = "not asked yet"
    #: When the probe under way began.
    asked_at_s: float | None = None
    #: Since when it has not answered.
    failing_since_s: float | None = None

    def trouble(self) -> str:
        """Why it does not answer now. A probe that hangs blames its own dependency and no other."""
        if self.asked_at_s is not None and time.monotonic() - self.asked_at_s > PROBE_STALE_S:
            return f"no answer for {PROBE_STALE_S:.0f} s"
        return self.reason

    def failing_s(self) -> float:
        """For how long it has not answered."""
        since_s = self.failing_since_s or self.asked_at_s
        return time.monotonic() - since_s if since_s is not None else 0.0


@dataclass
class Health:
    """The health of this process. Written by the runner and the probers, read over HTTP."""

    role: str
    stop: Stop
    #: Metrics of this role, besides those of every role.
    registries: Sequence[CollectorRegistry] = ()
    phase: str = "starting"
    #: Why the role itself waits, in its phase; empty if it does not.
    waiting: str = ""
    checks: Mapping[str, Check] = field(default_factory=dict)
    #: Dependency -> for how long the role can serve without it, once it has been ready.
    patience_s: Mapping[str, float] = field(default_factory=dict)
    _was_ready: bool = False

    @property
    def ready(self) -> bool:
        """Whether the role can serve. It stops being ready before it stops to serve."""
        if self.phase != "running" or self.stop or self.waiting:
            return False
        failing = {name: check.failing_s() for name, check in self.checks.items() if check.trouble()}
        if not failing:
            self._was_ready = True
            return True
        return self._was_ready and all(failing[name] <= self.patience_s.get(name, -1.0) for name in failing)

    def document(self) -> dict[str, object]:
        phase = "draining" if self.stop and self.phase == "running" else self.phase
        checks = {name: check.trouble() or "ok" for name, check in self.checks.items()}
        if self.waiting:
            checks[phase] = self.waiting
        ready = self.ready
        degraded = ready and any(reason != "ok" for reason in checks.values())
        return {"role": self.role, "phase": phase, "ready": ready, "degraded": degraded, "checks": checks}

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", self._healthz),
            Route("/livez", self._livez),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
        ]

    async def _healthz(self, _: Request) -> Response:
        return JSONResponse(self.document())

    async def _livez(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _: Request) -> Response:
        return JSONResponse(self.document(), status_code=200 if self.ready else 503)

    async def _metrics(self, _: Request) -> Response:
        return Response(metrics_page(self.registries), media_type=CONTENT_TYPE_LATEST)


class _Used:
    """The metrics of the process that have values. The others belong to roles that were forked from the same image."""

    def collect(self) -> Iterator[Metric]:
        return (family for family in REGISTRY.collect() if family.samples)


def metrics_page(registries: Sequence[CollectorRegistry] = ()) -> bytes:
    used = CollectorRegistry()
    used.register(_Used())
    return b"".join(generate_latest(registry) for registry in (used, *registries))


class Probers:
    """Probe each dependency in a thread of its own, so that `/readyz` answers at once and adds no load."""

    def __init__(self, health: Health, probes: Mapping[str, Probe], stop: Stop) -> None:
        self._health = health
        self._probes = probes
        self._stop_asked = stop
        ROLE_READY.labels(role=health.role).set_function(lambda: float(health.ready))
        health.checks = {name: Check() for name in probes}

    def start(self) -> None:
        for name, probe in self._probes.items():
            threading.Thread(target=self._watch, args=(name, probe), name=f"prober-{name}", daemon=True).start()

    def _watch(self, name: str, probe: Probe) -> None:
        check = self._health.checks[name]
        while True:
            self._ask(check, probe)
            if self._stop_asked.wait(PROBE_INTERVAL_S if check.reason else PROBE_HEALTHY_S):
                return

    def _ask(self, check: Check, probe: Probe) -> None:
        began_s = check.asked_at_s = time.monotonic()
        reason = ""
        try:
            probe()
        except LakeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  (a dependency whose prober died would count as down forever)
            reason = f"cannot be asked: {type(error).__name__}: {error}"
            log.warning("probe failed", role=self._health.role, error=reason)
        if not reason:
            check.failing_since_s = None
        elif check.failing_since_s is None:
            check.failing_since_s = began_s
        check.reason = reason
        check.asked_at_s = None
