"""Says what rules would answer of a query, without running it."""

from __future__ import annotations

import uuid

from lakerunner.index.database import Database
from lakerunner.index.rule_catalog import live_rules
from lakerunner.model.errors import BadInput
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import language
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.planner import Planner
from lakerunner.query.rules.rewriter import REWRITER, Note
from lakerunner.query.series.times import QueryTimes


def explain(database: Database, org_id: uuid.UUID, name: str, text: str, times: QueryTimes) -> tuple[Note, ...]:
    """What becomes of every part of the query and every live rule of the org, with the segments of now."""
    plan = language(name).compile(text, times, QueryOptions())
    if not isinstance(plan, StepPlan):
        raise BadInput("cannot compare the query with rules: it has no values over time", hint="ask for a metric")
    with database.transaction() as tx:
        rules = live_rules(tx, org_id)
    considered = REWRITER.consider_stored(plan, rules)
    if considered is None:
        return ()
    planner = Planner(Catalog(database), org_id)
    planner.prepare(considered.leaves, considered.wants)
    return considered.decided(planner.gaps, planner.segments)[1]
