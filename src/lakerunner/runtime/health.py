"""Health over HTTP: liveness, readiness with the reason when not ready, and metrics; the same for every role."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Metric, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import ROLE_READY
from lakerunner.runtime.role import Probe
from lakerunner.runtime.stop import Stop

#: How often dependencies are probed: often while one does not answer, so that it is used soon after it is back.
PROBE_INTERVAL_S, PROBE_HEALTHY_S = 1.0, 3.0
#: A probe that takes longer hangs: the dependency accepts connections but does not answer.
PROBE_STALE_S = 8.0


@dataclass
class Health:
    """The health of this process. Written by the runner and the prober, read over HTTP."""

    role: str
    #: Metrics of this role, besides those of every role.
    registries: Sequence[CollectorRegistry] = ()
    phase: str = "starting"
    #: Dependency -> why it does not answer. An empty reason means that it does.
    reasons: Mapping[str, str] = field(default_factory=dict)
    probed_at: float = field(default_factory=time.monotonic)

    @property
    def ready(self) -> bool:
        return self.phase == "running" and not any(self.reasons.values()) and not self._stale

    @property
    def _stale(self) -> bool:
        return time.monotonic() - self.probed_at > PROBE_STALE_S

    def document(self) -> dict[str, object]:
        checks = {name: reason or "ok" for name, reason in self.reasons.items()}
        if self._stale and self.phase == "running":
            checks = dict.fromkeys(checks, f"no answer for {PROBE_STALE_S:.0f} s")
        return {"role": self.role, "phase": self.phase, "ready": self.ready, "checks": checks}

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


class Prober(threading.Thread):
    """Probes the dependencies periodically, so that `/readyz` answers at once and adds no load."""

    def __init__(self, health: Health, probes: Mapping[str, Probe], stop: Stop) -> None:
        super().__init__(name="prober", daemon=True)
        self._health = health
        self._probes = probes
        self._stop_asked = stop
        self._gauge = ROLE_READY.labels(role=health.role)

    def run(self) -> None:
        while True:
            self.probe_once()
            if self._stop_asked.wait(PROBE_HEALTHY_S if self._health.ready else PROBE_INTERVAL_S):
                return

    def probe_once(self) -> None:
        self._health.reasons = {name: _reason(probe) for name, probe in self._probes.items()}
        self._health.probed_at = time.monotonic()
        self._gauge.set(self._health.ready)


def _reason(probe: Probe) -> str:
    try:
        probe()
    except LakeError as error:
        return str(error)
    return ""
