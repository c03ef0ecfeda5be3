"""A query that the API asks itself before it is ready, so that the first client does not pay for what is done once.

PostgreSQL plans the statements of a lookup once per connection: 10 ms of its CPU time (2026-11-18, on busy cores). The
first request that waits for a thread imports what waits for it: as long.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime

from starlette.concurrency import run_in_threadpool

from lakerunner.index.rule_catalog import StoredRule
from lakerunner.model.errors import LakeError
from lakerunner.model.signals import LOGS
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.lake import Lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rewriting import rewriter
from lakerunner.query.run import run
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.rendering.values import data_json

#: An org that nobody has.
_NOBODY = uuid.UUID(int=0)
_STEP_MS = 60_000
_TEXT = 'topk(3, sum by (a) (rate({a=~".+"}[1m]))) / sum by (a) (count_over_time({a=~".+"}[1m]))'
_RULE = StoredRule(
    rule_id=0,
    org_id=_NOBODY,
    signal=LOGS.name,
    name="warm",
    group_name="",
    version=1,
    definition={"match": '{a=~".+"}', "dimensions": ["a"], "compute": "count"},
    since_version=1,
    until_version=None,
    created_at=datetime.fromtimestamp(0, UTC),
    created_by="",
    retired_at=None,
    retired_reason=None,
)


def ask_first(lake: Lake) -> None:
    """Answer a query of log lines by a rule, for an org without any. An index that does not answer is no error."""
    asyncio.run(run_in_threadpool(lambda: None))
    end_ms = time.time_ns() // NS_PER_MS // _STEP_MS * _STEP_MS
    times = QueryTimes(end_ms - 10 * _STEP_MS, end_ms, _STEP_MS)
    with suppress(LakeError):
        plan = language("logql").compile(_TEXT, times, QueryOptions())
        considered = rewriter().consider_stored(plan, (_RULE,))
        assert considered is not None
        source = lake.query(_NOBODY)
        source.prepare(considered.leaves, considered.wants)
        plan, _ = considered.decided(source.gaps, source.looked_up)
        data_json(run(plan, source, lambda: None).value)
