"""The role of the ingest boxer."""

from __future__ import annotations

from lakerunner.bus import topics
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.by_signal import SignalsRole
from lakerunner.runtime.stop import Stop

#: The same for all roles, so that one of all signals and one of a single signal share the work.
GROUP = "boxer-ingest"


class IngestBoxer(SignalsRole):
    name = "boxer-ingest"
    sentence = "Gather raw objects of all signals into work items for ingest."

    def run(self, stop: Stop) -> None:
        consumer = self.bus.consumer(GROUP, [topics.objects(signal).name for signal in self.signals])
        try:
            Boxer(self.database, consumer, self.settings.pipeline).run(stop)
        finally:
            consumer.close()
