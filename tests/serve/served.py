"""The query API served over real HTTP, over a lake of real segments and with a real worker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
from starlette.requests import Request

from lakerunner.model.labels import LabelSet
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.query.lake import Lake
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.settings import ApiSettings
from lakerunner.serve.api import Api
from lakerunner.serve.app import api_routes
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.caller import Caller
from tests.query.lake_of_series import LakeOfSeries, samples_table, series_table
from tests.query.worker_lake import PacedWorkers, WorkerLake

#: Times of the data: a sample every 15 s for an hour.
START_S = 1_700_000_000
STEPS = 240
STEP_S = 15
END_S = START_S + (STEPS - 1) * STEP_S
#: Far enough for requests without times to see the data.
_METADATA_RANGE_S = 50 * 365 * 86_400.0


class AuthOf(Authenticator):
    """Lets everybody in, for one org."""

    def __init__(self, org_id: uuid.UUID) -> None:
        self.org_id = org_id

    async def caller(self, request: Request) -> Caller:
        return Caller(self.org_id, "test")

    async def operator(self, request: Request) -> Caller:
        return await self.caller(request)

    async def administrator(self, request: Request) -> Caller:
        return await self.caller(request)


@dataclass(frozen=True, repr=False)
class Served:
    """One API and what is below it. Without a repr: pytest would print a whole lake."""

    api: Api
    lake: Lake
    url: str
    client: httpx.Client
    #: Between the API and the worker; only where the API is over a `WorkerLake`.
    workers: PacedWorkers


Serve = Callable[..., Served]


@contextmanager
def serving(lake: WorkerLake, open_auth: Authenticator | None = None) -> Iterator[Serve]:
    """Serve APIs over the lake; everything is closed afterwards."""
    with serving_lakes() as serve:

        def made(auth: Authenticator | None = None, **settings: float) -> Served:
            chosen = auth or open_auth
            assert chosen is not None
            opened, workers = lake.opened()
            return serve(opened, chosen, workers, **{"metadata_range_s": _METADATA_RANGE_S, **settings})

        yield made


@contextmanager
def serving_lakes() -> Iterator[Serve]:
    """Serve APIs over any opened lakes."""
    running: list[tuple[HttpServer, httpx.Client, Api]] = []

    def serve(lake: Lake, auth: Authenticator, workers: Any = None, **settings: float) -> Served:
        api = Api.over(ApiSettings.model_validate(settings), lake, auth)
        server = HttpServer("127.0.0.1", 0, api_routes(api))
        server.start()
        url = f"http://127.0.0.1:{server.port}"
        client = httpx.Client(base_url=url, timeout=30)
        running.append((server, client, api))
        return Served(api, lake, url, client, workers)

    try:
        yield serve
    finally:
        for server, client, api in running:
            client.close()
            api.close()
            server.close()


def filled(prefix: str = "", jobs: int = 3) -> MemorySource:
    """The series that most tests ask for."""
    source = MemorySource()
    times = (START_S + STEP_S * np.arange(STEPS)) * 1000
    for job in range(jobs):
        labels = {"__name__": f"{prefix}requests_total", "job": f"{prefix}job{job}", "code": "200"}
        source.add(LabelSet.of(labels), times, np.arange(STEPS) * (job + 1.0))
        source.add(LabelSet.of({**labels, "__name__": f"{prefix}up"}), times, np.ones(STEPS))
    histogram = Histogram(schema=0, count=3.0, sum=4.5, pos_index=np.array([0, 2]), pos_count=np.array([1.0, 2.0]))
    source.add(
        LabelSet.of({"__name__": f"{prefix}latency", "job": f"{prefix}job0"}),
        times,
        np.zeros(STEPS),
        histograms=[histogram] * STEPS,
    )
    return source


def write_filled(lake: LakeOfSeries, org_id: uuid.UUID, prefix: str = "", help_text: str = "Requests.") -> Segment:
    """One segment with the series of `filled`. The requests are a counter with an exemplar, as an author declares."""
    series = list(filled(prefix)._series.values())
    name = f"{prefix}requests_total"
    samples, described = samples_table(series), series_table(series, None)
    job0 = LabelSet.of({"__name__": name, "job": f"{prefix}job0", "code": "200"})
    first = samples.column("tid").to_pylist().index(job0.tid())
    example = {"timestamp": START_S * 1000 + 479, "value": 6.0, "trace_id": "abc"}
    examples = [[example] if row == first else None for row in range(samples.num_rows)]
    rows = [
        {**row, "type": "counter", "description": help_text, "unit": ""} if row["metric_name"] == name else row
        for row in described.to_pylist()
    ]
    tables = {
        SAMPLES.suffix: _with_column(samples, "exemplars", examples),
        SERIES.suffix: pa.Table.from_pylist(rows, schema=SERIES.schema()),
    }
    segment = lake.put_tables(org_id, tables)
    lake.commit(org_id, [segment])
    return segment


def _with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


@dataclass(frozen=True, repr=False)
class TwoOrgs:
    auth: Authenticator
    lake: WorkerLake
    ours: uuid.UUID
    theirs: uuid.UUID
    #: Secrets by what their key may do.
    secrets: dict[str, str]
