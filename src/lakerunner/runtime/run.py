"""Run one role in this process, from its settings to its exit code."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

from lakerunner.model.errors import LakeError
from lakerunner.runtime.exit_code import EXIT_FAILED, EXIT_OK, EXIT_RECYCLED, exit_code_of
from lakerunner.runtime.health import Health, Probers
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.role import Recycle, Role
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import configure_telemetry, log

SUPERVISOR_VARIABLE = "LAKERUNNER_SUPERVISOR_PID"
#: Waits between attempts to reach a dependency that is down. Short, so that it is used soon after it is back.
_DEPENDENCY_BACKOFF = Backoff(base_s=0.25, cap_s=5.0)


def run_role(role_class: type[Role], settings: Settings) -> int:
    """Take a role through its life: configure, start, run, drain, stop. Returns the exit code."""
    flush = configure_telemetry(role_class.name, settings)
    stop = Stop()
    _stop_on_signals(stop)
    _stop_with_supervisor(stop)
    health = Health(role_class.name, stop, role_class.registries)
    role: Role | None = None
    server: HttpServer | None = None
    try:
        role = role_class(settings)
        _end_in_time(role, stop, health)
        server = HttpServer(settings.http.host, settings.http.port, [*health.routes(), *role.routes()])
        server.start()
        log().info("listening", host=server.host, port=server.port)
        _persist(role.start, stop, health)
        health.patience_s = role.patience_s()
        Probers(health, role.probes(), stop).start()
        health.phase = "running"
        _persist(partial(role.run, stop), stop, health)
        health.phase = "draining"
        log().info("drained")
        return EXIT_OK
    except Recycle as reason:
        health.phase = "draining"
        log().info("recycled", reason=str(reason))
        return EXIT_RECYCLED
    except LakeError as error:
        log().error("role failed", error=str(error), code=error.code)
        return exit_code_of(error)
    finally:
        health.phase = "stopped"
        stop.request()
        if server is not None:
            server.stop_listening()
        if role is not None:
            role.close()
        if server is not None:
            server.close()
        flush()


def _persist(call: Callable[[], None], stop: Stop, health: Health) -> None:
    """Repeat the call until it returns, waiting after each retryable error."""
    failures = 0
    while not stop:
        try:
            call()
            health.waiting = ""
            return
        except LakeError as error:
            if not error.retryable:
                raise
            failures += 1
            health.waiting = str(error)
            log().warning("waiting for a dependency", error=str(error), tries=failures)
            stop.wait(_DEPENDENCY_BACKOFF.ceiling_s(failures))
            if health.phase == "running":
                # It works again, as far as is known. A start is known to have ended only when it has.
                health.waiting = ""


def _stop_on_signals(stop: Stop) -> None:
    def request(*_: object) -> None:
        stop.request()

    signal.signal(signal.SIGTERM, request)
    signal.signal(signal.SIGINT, request)


def _end_in_time(role: Role, stop: Stop, health: Health) -> None:
    """Once told to stop, do not wait for what hangs: a role may be killed at any time, so it may also end itself."""

    def watch() -> None:
        stop.wait(None)
        if health.phase == "starting":
            role.hurry()
        grace_s = role.grace_s()
        if grace_s is not None:
            time.sleep(grace_s)
            log().error("ended by force", role=role.name, phase=health.phase, grace_s=grace_s)
            os._exit(EXIT_FAILED)

    threading.Thread(target=watch, name="end-in-time", daemon=True).start()


def _log_to_nowhere() -> None:
    """Discard output: the supervisor read our logs, and writing to its closed pipe would kill us before we drain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def _stop_with_supervisor(stop: Stop) -> None:
    """Stop when the `serve` that started this role is gone, even if it was killed and could not signal us."""
    expected = os.environ.get(SUPERVISOR_VARIABLE)
    if not expected:
        return

    def watch() -> None:
        while not stop.wait(0.5):
            if os.getppid() != int(expected):
                stop.request()
                _log_to_nowhere()

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
