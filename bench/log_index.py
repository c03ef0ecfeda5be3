"""What the needle filters, the bloom filters of ids and the fingerprints of log records cost ingest, in CPU and bytes.

    make bench CASE="log_index --quick"     50,000 records
    make bench CASE=log_index               400,000 records

The same objects are ingested by ingest's own task, with all three and without any, by turns in one process. The median
of the CPU time counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
from bench.logql.records import OBJECT_ROWS, objects
from bench.served.report import Figure, Report

from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.model.raw_object import CONTENT_VERSION, RawObject, content_hash
from lakerunner.model.signals.logs import LOGS
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.needles import FilterSpool
from lakerunner.store.open import open_store

_RECORDS, _QUICK_RECORDS = 400_000, 50_000
_MOST_CPU, _MOST_BYTES = 1.35, 1.1
_figure = partial(Figure, "log_index")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench log_index", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="use fewer records")
    parser.add_argument("--rounds", type=int, default=5, help="turns with and without; the median counts")
    options = parser.parse_args()
    records = _QUICK_RECORDS if options.quick else _RECORDS
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as folder:
        config = StoreConfig.of(Settings(data=DataSettings(dir=Path(folder))))
        raws = _raw_objects(config, max(records, OBJECT_ROWS))
        _ingest(config, raws)
        spent: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for _ in range(options.rounds):
            spent[True].append(_ingest(config, raws))
            with _without_index():
                spent[False].append(_ingest(config, raws))
    cpu = {each: statistics.median(cpu_s for cpu_s, _ in found) * 1e6 / records for each, found in spent.items()}
    stored = {each: found[0][1] / records for each, found in spent.items()}
    report = Report()
    report.tell(
        _figure("ingest cpu per record", cpu[True], "µs", "without index and fingerprint", cpu[False], _MOST_CPU),
        _figure(
            "stored bytes per record", stored[True], "B", "without index and fingerprint", stored[False], _MOST_BYTES
        ),
    )
    report.conclude("one process; reading, decoding, sorting and writing included")
    return 0


def _raw_objects(config: StoreConfig, records: int) -> list[RawObject]:
    store = open_store(config)
    raws = []
    for number, body in enumerate(objects(records)):
        key = f"otel-raw/default/bench/logs_{number:04}.binpb"
        store.put(key, body)
        version = CONTENT_VERSION + content_hash(body).hexdigest()
        raws.append(RawObject(DEFAULT_ORG_ID, "bench", LOGS.name, config.url, key, version, len(body)))
    return raws


def _ingest(config: StoreConfig, raws: Sequence[RawObject]) -> tuple[float, int]:
    """Ingest the objects as one item; return the CPU seconds and the bytes of its segments."""
    task = IngestTask(uuid.uuid4(), DEFAULT_ORG_ID, "bench", LOGS.name, tuple(raws), {config.url: config}, config)
    began_s = time.process_time()
    made = run_task(task)
    cpu_s = time.process_time() - began_s
    if made.error is not None:
        raise made.error
    return cpu_s, sum(segment.size_bytes for segment in made.segments)


@contextmanager
def _without_index() -> Iterator[None]:
    def no_fingerprints(messages: pa.ChunkedArray) -> pa.ChunkedArray:
        return pa.chunked_array([pa.nulls(len(messages), pa.int64())])

    with (
        mock.patch("lakerunner.store.table_writer.FilterSpool", lambda columns: FilterSpool([])),
        mock.patch("lakerunner.store.encoding._is_id", lambda leaf: False),
        mock.patch("lakerunner.formats.log_details.fingerprints", no_fingerprints),
    ):
        yield


if __name__ == "__main__":
    sys.exit(main())
