"""The `stats` member of an answer: the figures of Loki's that apply here."""

from __future__ import annotations

from lakerunner.query.stats import QueryStats
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.rendering.json import json_text

_CACHES = ("chunk", "index", "result", "statsResult", "volumeResult", "seriesResult", "labelResult")
_CACHE = {"entriesFound": 0, "entriesRequested": 0, "entriesStored": 0, "bytesReceived": 0, "bytesSent": 0}
#: Written once, because most of it never changes and every answer has it.
_STATS = (
    b'{"summary":{"bytesProcessedPerSecond":%d,"linesProcessedPerSecond":%d,"totalBytesProcessed":%d,'
    b'"totalLinesProcessed":%d,"execTime":%.6f,"queueTime":0,"subqueries":0,"totalEntriesReturned":%d,"splits":0,'
    b'"shards":0},"querier":{"store":{"totalChunksRef":%d,"totalChunksDownloaded":%d,"chunksDownloadTime":%d,'
    b'"chunk":{"decompressedBytes":%d,"decompressedLines":%d}}},"ingester":{"store":{}},"cache":'
    + json_text(dict.fromkeys(_CACHES, _CACHE))
    + b',"index":{"totalChunks":%d,"postFilterChunks":%d}}'
)


def stats_json(stats: QueryStats, query: RunningQuery, entries: int) -> bytes:
    """What the query read. A segment counts as a chunk."""
    elapsed_s = max(query.elapsed_s, 1e-6)
    return _STATS % (
        round(stats.read_bytes / elapsed_s),
        round(stats.rows / elapsed_s),
        stats.read_bytes,
        stats.rows,
        elapsed_s,
        entries,
        stats.segments_planned,
        stats.segments_read,
        round(stats.seconds.get("fetch", 0.0) * 1e9),
        stats.read_bytes,
        stats.rows,
        stats.segments_considered,
        stats.segments_planned,
    )
