"""Says which traces of a search may have spans beyond the time in which they were looked for."""

from __future__ import annotations

import orjson
import pyarrow as pa


class CutTraces:
    """Traces of an answer that may have spans beyond the time in which they were looked for."""

    def __init__(self, reach_s: float) -> None:
        self._reach_s = reach_s
        self._count = 0
        self._first = ""

    def add(self, batch: pa.RecordBatch) -> None:
        if "cut" not in batch.schema.names:
            return  # A worker of the release before does not say it.
        documents = batch.column("document").filter(batch.column("cut"))
        if len(documents) and not self._first:
            self._first = str(orjson.loads(documents[0].as_py())["traceID"])
        self._count += len(documents)

    def warnings(self) -> list[str]:
        if not self._count:
            return []
        traces = f"trace {self._first}" if self._count == 1 else f"{self._count:,} traces, {self._first} among them,"
        beyond = f"more than {self._reach_s:g} s outside the range (api.trace_reach_s)"
        return [f"{traces} may have spans {beyond}, which were not looked for"]
