"""The `stats` member of an answer: the figures of Loki's that apply here."""

from __future__ import annotations

from lakerunner.query.stats import QueryStats
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.rendering.json import json_text

_CACHES = ("chunk", "index", "result", "statsResult", "volumeResult", "seriesResult", "labelResult")
_CACHE = {"entriesFound": 0, "entriesRequested": 0, "entriesStored": 0, "bytesReceived": 0, "bytesSent": 0}


def stats_json(stats: QueryStats, query: RunningQuery, entries: int) -> bytes:
    """What the query read. A segment counts as a chunk."""
    elapsed_s = max(query.elapsed_s, 1e-6)
    store = {
        "totalChunksRef": stats.segments_planned,
        "totalChunksDownloaded": stats.segments_read,
        "chunksDownloadTime": round(stats.seconds.get("fetch", 0.0) * 1e9),
        "chunk": {"decompressedBytes": stats.read_bytes, "decompressedLines": stats.rows},
    }
    return json_text(
        {
            "summary": {
                "bytesProcessedPerSecond": round(stats.read_bytes / elapsed_s),
                "linesProcessedPerSecond": round(stats.rows / elapsed_s),
                "totalBytesProcessed": stats.read_bytes,
                "totalLinesProcessed": stats.rows,
                "execTime": round(elapsed_s, 6),
                "queueTime": 0,
                "subqueries": 0,
                "totalEntriesReturned": entries,
                "splits": 0,
                "shards": 0,
            },
            "querier": {"store": store},
            "ingester": {"store": {}},
            "cache": dict.fromkeys(_CACHES, _CACHE),
            "index": {"totalChunks": stats.segments_considered, "postFilterChunks": stats.segments_planned},
        }
    )
