"""Look for the rows of a round through the query API: LogQL for logs, PromQL for metrics, a row filter for spans."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
import pyarrow as pa

from lakerunner.index.canary_rounds import CanaryRound
from lakerunner.model.errors import Unavailable
from lakerunner.model.time import NS_PER_MS
from lakerunner.ops.canary.rows import METRIC, SERVICE, message_prefix, trace_id

_TIMEOUT_S = 30.0
#: More rows than a round has, so that doubled ones are seen.
_LIMIT = 5_000


@dataclass(frozen=True, slots=True)
class Found:
    """How many rows an answer had, and how many different ones."""

    rows: int
    distinct: int


@dataclass(frozen=True, slots=True)
class QueryClient:
    """The query API, with the canary's own key."""

    url: str
    key: str

    def json(self, path: str, params: Mapping[str, object]) -> Any:
        return orjson.loads(self._read(f"{path}?{urlencode({**params, 'nocache': '1'})}", None))["data"]

    def arrow(self, path: str, body: Mapping[str, object]) -> pa.Table:
        with pa.ipc.open_stream(self._read(path, orjson.dumps(body))) as reader:
            return reader.read_all()

    def _read(self, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url.rstrip("/") + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                read: bytes = answer.read()
                return read
        except urllib.error.HTTPError as error:
            reason = error.read(500).decode(errors="replace")
            raise Unavailable(f"cannot query {self.url}: status {error.code}: {reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"cannot reach the query API at {self.url}: {error}", hint="check api.url") from None


def look(client: QueryClient, each: CanaryRound) -> Found:
    """Ask for the rows of the round. Raises Unavailable when the API does not answer."""
    return _LOOKS[each.signal](client, each)


def _logs(client: QueryClient, each: CanaryRound) -> Found:
    text = f'{{service_name="{SERVICE}"}} |= "{message_prefix(each.round_id)}"'
    span = {"start": each.event_ns, "end": each.event_ns + NS_PER_MS}
    answer = client.json("/loki/api/v1/query_range", {"query": text, **span, "limit": _LIMIT})
    lines = [value[1] for stream in answer["result"] for value in stream["values"]]
    return Found(len(lines), len(set(lines)))


def _metrics(client: QueryClient, each: CanaryRound) -> Found:
    """Samples of one series and time are one sample to PromQL, so a metric row that is stored twice is not seen."""
    # One query, so that both are of one snapshot: rows may become visible between two.
    counts = {"rows": f"sum(count_over_time({METRIC}[500ms]))", "right": f"count({METRIC} == {each.round_id})"}
    text = " or ".join(f'label_replace({query}, "is", "{name}", "", "")' for name, query in counts.items())
    answer = client.json("/api/v1/query", {"query": text, "time": f"{each.event_ns / 1e9:.3f}"})
    found = {series["metric"]["is"]: int(float(series["value"][1])) for series in answer["result"]}
    return Found(found.get("rows", 0), found.get("right", 0))


def _traces(client: QueryClient, each: CanaryRound) -> Found:
    at_ms = each.event_ns // NS_PER_MS
    body = {
        "where": f'trace_id = "{trace_id(each.round_id).hex()}"', "s": at_ms - 1_000, "e": at_ms + 1_000,
        "limit": _LIMIT, "fields": ["span_id"],
    }  # fmt: skip
    table = client.arrow("/api/v1/rows/traces", body)
    # An answer without rows has no columns either.
    spans = table.column("span_id").to_pylist() if table.num_rows else []
    return Found(len(spans), len(set(spans)))


_LOOKS: dict[str, Callable[[QueryClient, CanaryRound], Found]] = {"logs": _logs, "metrics": _metrics, "traces": _traces}
