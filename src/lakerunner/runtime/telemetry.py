"""Telemetry of our own processes: structured logs always, OpenTelemetry spans when an endpoint is set."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import trace

from lakerunner import __version__
from lakerunner.runtime.secrets import Hider
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.settings.table import secret_texts

# structlog imports rich where it is installed, to draw tracebacks. That takes a twentieth of a second of every start.
_without_rich = "rich" not in sys.modules
if _without_rich:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if _without_rich:
    del sys.modules["rich"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
#: Libraries that warn about failures which we report ourselves, with a reason and a hint.
_QUIET = ("uvicorn.error", "azure", "botocore", "urllib3")


def log() -> structlog.stdlib.BoundLogger:
    """Return the logger. Pass the event first, then its fields: `log().info("item committed", org=…, item=…)`."""
    logger: structlog.stdlib.BoundLogger = structlog.get_logger()
    return logger


@contextmanager
def span(name: str, **attributes: str | int | float) -> Iterator[None]:
    """Trace the block as a span, and add its attributes to every log line inside."""
    with (
        structlog.contextvars.bound_contextvars(**attributes),
        trace.get_tracer("lakerunner").start_as_current_span(name, attributes=attributes),
    ):
        yield


def configure_telemetry(role: str, settings: Settings) -> Callable[[], None]:
    """Set up logs and spans for this process. Call the returned function to flush them before the process ends."""
    _configure_logs(settings)
    structlog.contextvars.bind_contextvars(role=role)
    if not settings.telemetry.otlp_endpoint:
        return lambda: None
    # Imported where they are needed: they take a third of a second.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"lakerunner-{role}", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    endpoint = settings.telemetry.otlp_endpoint.rstrip("/") + "/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _configure_logs(settings: Settings) -> None:
    as_json = settings.log.format == "json" or (settings.log.format == "auto" and not sys.stderr.isatty())
    level = _LEVELS[settings.log.level]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Before secrets are hidden: a traceback may contain them.
    trace_back: structlog.typing.Processor = (
        structlog.processors.dict_tracebacks if as_json else structlog.processors.format_exc_info
    )
    hide = Hider.of_process(secret_texts(settings))
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            *shared,
            trace_back,
            hide,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    foreign: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        trace_back,
        hide,
        last,
    ]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=foreign, foreign_pre_chain=shared))
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
