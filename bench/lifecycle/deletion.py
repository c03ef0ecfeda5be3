"""Peak memory of rewriting one segment without the rows of a service, as its rows grow: it must not follow them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.lifecycle.compaction import apart, line, make_inputs
from bench.otlp import SERVICES

from lakerunner.model.hidden import HiddenRows
from lakerunner.model.ids import fresh_id
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.delete.task import RewriteTask, run_task
from lakerunner.query.scan.hidden import predicate_condition
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, Op, Text

_ROWS = (500_000, 2_000_000)
_QUICK_ROWS = (50_000, 200_000)


def measure(quick: bool) -> Iterator[str]:
    smaller = 0.0
    for rows in _QUICK_ROWS if quick else _ROWS:
        with tempfile.TemporaryDirectory(prefix="bench-deletion-") as name:
            inputs = make_inputs(Path(name), LOGS, 1, rows)
            (segment,) = inputs.inputs
            condition = predicate_condition(Compare(Column("service_name"), Op.EQUAL, Text(SERVICES[0])))
            hidden = HiddenRows(fresh_id(), segment.time_range.start_ns, segment.time_range.end_ns, condition)
            task = RewriteTask(fresh_id(), segment, (hidden,), inputs.store, str(Path(name) / "scratch"))
            spent = apart(rewrite, task)
            case = f"{segment.row_count} rows of logs, {segment.size_bytes / 1e6:.0f} MB, {spent['cpu_s']:.1f} s of CPU"
            yield line(
                f"deletion, peak memory, {case}", spent["peak_mb"], "MB", "lower", "the smaller segment",
                smaller or spent["peak_mb"],
            )  # fmt: skip
            smaller = smaller or spent["peak_mb"]


def rewrite(task: RewriteTask) -> dict[str, float]:
    done = run_task(task)
    assert done.error is None and done.made is not None, done.error
    return {}
