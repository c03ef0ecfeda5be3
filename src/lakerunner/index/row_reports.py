"""Reports of rows that were not stored as sent, kept beside the ledger for as long as it keeps their object."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from psycopg.types.json import Jsonb

from lakerunner.index.database import Connection
from lakerunner.model.raw_object import ObjectOutcome
from lakerunner.model.row_report import Effect, RowReport, Sample

#: Totals look at no more than this many reports, so that their cost does not grow with the rate of intake.
_MAX_COUNTED = 100_000


def put_reports(tx: Connection, outcomes: Sequence[ObjectOutcome]) -> None:
    """Insert the reports of objects that end in this transaction."""
    reported = [(outcome.object_id, report) for outcome in outcomes for report in outcome.reports]
    if not reported:
        return
    tx.execute(
        "INSERT INTO row_report (object_id, effect, reason, rows, samples)"
        " SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::bigint[], %s::jsonb[])",
        [
            [object_id for object_id, _ in reported],
            [report.effect for _, report in reported],
            [report.reason for _, report in reported],
            [report.rows for _, report in reported],
            [Jsonb([asdict(sample) for sample in report.samples]) for _, report in reported],
        ],
    )


@dataclass(frozen=True, slots=True)
class ObjectReports:
    """An object with the reports of its rows."""

    object_id: uuid.UUID
    org_id: uuid.UUID
    signal: str
    bucket: str
    key: str
    #: Rows that were stored.
    row_count: int
    ended_at: datetime
    reports: list[RowReport]


def list_reports(tx: Connection, reason: str | None = None, limit: int = 100) -> list[ObjectReports]:
    """Return the latest objects that have reports; with `reason`, those that have one with that reason."""
    rows = tx.execute(
        "SELECT o.object_id, o.org_id, o.signal, o.bucket, o.key, o.row_count, o.ended_at,"
        " r.effect, r.reason, r.rows, r.samples FROM"
        " (SELECT DISTINCT at, object_id FROM row_report WHERE %(reason)s::text IS NULL OR reason = %(reason)s"
        " ORDER BY at DESC, object_id DESC LIMIT %(limit)s) AS latest"
        " JOIN raw_object o USING (object_id) JOIN row_report r USING (object_id)"
        " ORDER BY latest.at DESC, object_id DESC, r.effect DESC, r.rows DESC, r.reason",
        {"reason": reason, "limit": limit},
    ).fetchall()
    found: dict[uuid.UUID, ObjectReports] = {}
    for row in rows:
        samples = tuple(Sample(**sample) for sample in row.pop("samples"))
        report = RowReport(Effect(row.pop("effect")), row.pop("reason"), row.pop("rows"), samples)
        found.setdefault(row["object_id"], ObjectReports(**row, reports=[])).reports.append(report)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class ReportCount:
    signal: str
    effect: str
    reason: str
    rows: int
    objects: int


def count_reports(tx: Connection, minutes: int = 60) -> list[ReportCount]:
    """Return totals by signal, effect and reason over the last minutes."""
    rows = tx.execute(
        "SELECT o.signal, r.effect, r.reason, sum(r.rows)::bigint AS rows, count(*) AS objects FROM"
        " (SELECT * FROM row_report WHERE at > now() - make_interval(mins => %s) ORDER BY at DESC LIMIT %s) AS r"
        " JOIN raw_object o USING (object_id) GROUP BY 1, 2, 3 ORDER BY 1, 2 DESC, 4 DESC, 3",
        [minutes, _MAX_COUNTED],
    ).fetchall()
    return [ReportCount(**row) for row in rows]
