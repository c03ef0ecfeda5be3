"""The roles of the ingest boxer: one process for all signals, or one for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from lakerunner.bus import topics
from lakerunner.bus.open import open_bus
from lakerunner.index.indexed import IndexedRole
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.pipeline.boxer import Boxer
from lakerunner.runtime.role import Probe
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop

#: The same for all roles, so that one of all signals and one of a single signal share the work.
GROUP = "boxer-ingest"


class IngestBoxer(IndexedRole):
    name = "boxer-ingest"
    sentence = "Gather raw objects of all signals into work items for ingest."
    signals: ClassVar[tuple[Signal, ...]] = SIGNALS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.bus = open_bus(settings, self.database)

    def start(self) -> None:
        super().start()
        self.bus.ensure_topics()

    def probes(self) -> Mapping[str, Probe]:
        return {**super().probes(), "bus": self.bus.ping}

    def run(self, stop: Stop) -> None:
        consumer = self.bus.consumer(GROUP, [topics.objects(signal).name for signal in self.signals])
        try:
            Boxer(self.database, consumer, self.settings.pipeline).run(stop)
        finally:
            consumer.close()

    def close(self) -> None:
        self.bus.close()
        super().close()


class LogsIngestBoxer(IngestBoxer):
    name = "boxer-ingest-logs"
    sentence = "Gather raw objects of logs into work items for ingest."
    signals = (LOGS,)


class MetricsIngestBoxer(IngestBoxer):
    name = "boxer-ingest-metrics"
    sentence = "Gather raw objects of metrics into work items for ingest."
    signals = (METRICS,)


class TracesIngestBoxer(IngestBoxer):
    name = "boxer-ingest-traces"
    sentence = "Gather raw objects of traces into work items for ingest."
    signals = (TRACES,)
