"""What was sent, from the raw files alone; what is live, by the index and by the Parquet files; what is neither."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, segment_of_row
from lakerunner.model.segment import Segment
from lakerunner.model.signals import SIGNALS, signal_named
from lakerunner.store import keys
from tests.demo.requests import logs, points, spans
from tests.soak.deployment import POSTGRES, Kill

#: An attempt that was killed may have written its files this long before.
_ATTEMPT_S = 120.0


def raw_files(bucket: Path) -> list[Path]:
    """The raw files that the shop finished."""
    return sorted((bucket / keys.RAW_PREFIX).rglob("*.binpb.gz"))


def sent_rows(files: Sequence[Path]) -> dict[str, int]:
    """Rows by signal, decoded with OpenTelemetry's own classes."""
    rows: Counter[str] = Counter()
    for path in files:
        signal = path.name.partition("_")[0]
        payload = gzip.decompress(path.read_bytes())
        rows[signal] += {"logs": _logs, "metrics": _samples, "traces": _spans}[signal](payload)
    return {signal.name: rows[signal.name] for signal in SIGNALS}


def _logs(payload: bytes) -> int:
    return sum(1 for _ in logs([payload]))


def _spans(payload: bytes) -> int:
    return sum(1 for _ in spans([payload]))


def _samples(payload: bytes) -> int:
    """Each point is a row, of a summary each quantile, its sum and its count; each resource is one of `target_info`."""
    found = list(points([payload]))
    rows = sum(len(point.quantile_values) + 2 if kind == "summary" else 1 for _, _, kind, point in found)
    return rows + len({tuple(sorted(resource.items())) for resource, *_ in found})


def live_segments(tx: Connection) -> list[Segment]:
    return [segment_of_row(row) for row in tx.execute(SELECT_SEGMENTS + " WHERE s.state = 'live'").fetchall()]


def index_rows(segments: Sequence[Segment]) -> dict[str, int]:
    rows = Counter({signal.name: 0 for signal in SIGNALS})
    for segment in segments:
        rows[segment.signal] += segment.row_count
    return dict(rows)


def file_rows(bucket: Path, segments: Sequence[Segment]) -> dict[str, int]:
    """Rows in the files of the segments, counted by reading the column of the event time."""
    rows = Counter({signal.name: 0 for signal in SIGNALS})
    for segment in segments:
        path = bucket / keys.segment_keys(segment)[0]
        column = signal_named(segment.signal).time_column
        rows[segment.signal] += pq.read_table(path, columns=[column], partitioning=None).num_rows
    return dict(rows)


def orphans(bucket: Path, segments: Sequence[Segment]) -> list[Path]:
    """Files that no live segment names."""
    named = {bucket / key for segment in segments for key in keys.segment_keys(segment)}
    return [path for path in (bucket / keys.COOKED_PREFIX).rglob("*.parquet") if path not in named]


def unaccounted(files: Sequence[Path], kills: Sequence[Kill]) -> list[str]:
    """Orphans that no kill explains: only an attempt that lost ingest or the index leaves files behind."""
    deaths = [kill.at_s for kill in kills if kill.name in ("ingest", POSTGRES)]
    return [
        path.name for path in files if not any(0 <= at_s - path.stat().st_mtime + 1.0 <= _ATTEMPT_S for at_s in deaths)
    ]


def freshness(tx: Connection, bucket: Path, from_s: float, until_s: float) -> list[float]:
    """For every object of that time that is done, the seconds from its file's last change to its rows being visible."""
    rows = tx.execute(
        "SELECT key, extract(epoch FROM ended_at)::float8 AS done_at FROM raw_object WHERE state = 'done'"
    ).fetchall()
    written = {row["key"]: (bucket / row["key"]).stat().st_mtime for row in rows}
    return sorted(row["done_at"] - at_s for row in rows if from_s <= (at_s := written[row["key"]]) <= until_s)
