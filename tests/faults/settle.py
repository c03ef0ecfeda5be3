"""The crash matrix of calls to services that send no spans: ingest is killed while it counts those that waited.

Clients name the service that they called, and nobody answers. The seed draws how many, and in how many objects they
come. In the end every call is counted once, no half waits, and no item is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lakerunner.model.signals import TRACES
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from tests.faults import matrix
from tests.faults.clean_roles import beside, relay, until
from tests.faults.matrix import Matrix
from tests.faults.victims import kill_role, run_here
from tests.formats.otlp_samples import START_NS, pairs
from tests.pipeline.compact.small_lake import ingest
from tests.pipeline.derive.test_service_graph import batch_of, counted
from tests.pipeline.lake import WORK_TOPICS

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "settle_after_write": "ingest",
    "before_commit": "ingest",
    "after_commit": "ingest",
    "settle_after_commit": "ingest",
}
_CALLS = "traces_service_graph_request_total"


class Trial(matrix.Trial):
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        # Long enough that the items of the spans themselves count none.
        return {"derive": {"span_metrics": False, "service_graph": True, "peer_wait_s": 1.0}}

    def run(self) -> str:
        expected: Counter[tuple[str, str]] = Counter()
        for _ in range(self.draw.randint(1, 4)):
            spans = [self._call() for _ in range(self.draw.randint(1, 30))]
            ingest(self.lake, self.lake.put(TRACES, batch_of([(service, span) for service, _, span in spans])))
            expected.update((service, peer) for service, peer, _ in spans)
        with beside(relay(self.lake)):
            kill_role(self.lake, POINTS[self.cell.point], self.cell.point, 1)
            with beside(self._worker):
                until(lambda: self.count("service_graph_half") == 0, "all calls are counted")
        assert self.count("work_item WHERE state = 'open'") == 0, "an item that nobody can do"
        found = counted(self.lake, _CALLS)
        assert found == expected, f"counted {found}, called {expected}"
        return f"calls {sum(expected.values())}"

    def _call(self) -> tuple[str, str, Span]:
        service, peer = self.draw.choice(["cart", "shop"]), self.draw.choice(["bank", "post"])
        start_ns = START_NS + self.draw.randrange(10**11)
        ids = {"trace_id": self.draw.randbytes(16), "span_id": self.draw.randbytes(8)}
        times = {"start_time_unix_nano": start_ns, "end_time_unix_nano": start_ns + 10**6}
        span = Span(kind=Span.SPAN_KIND_CLIENT, name="call", **ids, **times)
        span.attributes.extend(pairs({"peer.service": peer}))
        return service, peer, span

    def _worker(self, stop: Stop) -> None:
        settings, database = self.lake.settings, self.lake.database
        with self.consumer("ingest", WORK_TOPICS) as consumer:
            runner = IngestRunner(settings, database, run_here)
            Worker(INGEST, database, consumer, settings.pipeline, runner, 5).run(stop)


MATRIX = Matrix("settle", POINTS, Trial)
