"""Settings of every process: its port, its logs and traces, and how `lakerunner serve` supervises it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lakerunner.runtime.settings.section import Port, Seconds, Section


class HttpSettings(Section):
    """The HTTP port of each role."""

    host: str = Field("127.0.0.1", description="Address that roles bind.")
    port: Port = Field(
        7100,
        description="Port of a role that runs alone. Under `serve`, the API uses this port and the other roles use "
        "the ports after it. 0 lets the system choose.",
    )
    drain_s: Annotated[float, Field(ge=0, le=600)] = Field(
        3.0,
        description="How long a role that clients call keeps listening after SIGTERM, while it says that "
        "it is not ready, so that load balancers send nothing more. Under `serve` it is 0 unless it is set.",
    )


class LogSettings(Section):
    """Structured logs, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is written.")
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="JSON lines, coloured text, or auto: text on a terminal and JSON otherwise."
    )


class TelemetrySettings(Section):
    """Lakerunner's own traces."""

    otlp_endpoint: str = Field(
        "", description="OTLP/HTTP address that receives Lakerunner's own spans; empty means none."
    )


class ServeSettings(Section):
    """The supervisor of `lakerunner serve`."""

    ready_timeout_s: Seconds = Field(
        60.0, description="How long a role may take to become ready before serve reports it."
    )
    stop_timeout_s: Seconds = Field(20.0, description="How long all roles together may take to stop.")
    restart_base_s: Seconds = Field(
        0.5, description="Time between two starts of a role that crashes; it doubles with each crash."
    )
    restart_max_s: Seconds = Field(
        30.0,
        description="Longest time between two starts of a role that crashes. One that ran longer restarts at once.",
    )
