"""`lakerunner rules explain`: which parts of a query rules answer, and why they do not answer the others."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs.rules import OrgOption, app
from lakerunner.model.errors import BadInput

_COLUMNS = ["part", "rule", "rewritten", "reason"]


class QueryLanguage(enum.StrEnum):
    LOGQL = "logql"
    TRACEQL = "traceql"
    PROMQL = "promql"


@app.command()
@verb
def explain(
    cli: Cli,
    query: Annotated[str, typer.Argument(help="A metric query, such as 'sum(rate({service_name=\"cart\"}[5m]))'.")],
    org: OrgOption,
    language: Annotated[QueryLanguage, typer.Option(help="The language of the query.")] = QueryLanguage.LOGQL,
    since: Annotated[str, typer.Option(help="How far back the query looks.")] = "1h",
    step: Annotated[str, typer.Option(help="Distance of the points; a multiple of 10s for a rule to answer.")] = "1m",
) -> None:
    """Say which parts of a query rules would answer, without running it; for every refusal a sentence says why.

    Points lie at multiples of the step, as Grafana asks for them.
    """
    import time

    from lakerunner.index.orgs import find_org
    from lakerunner.query.rules.explain import explain as explained
    from lakerunner.query.series.times import QueryTimes
    from lakerunner.serve.params import parse_span_ms

    step_ms = parse_span_ms("step", step)
    if step_ms <= 0:
        raise BadInput("cannot explain the query: its step is not positive")
    end_ms = round(time.time() * 1000) // step_ms * step_ms
    start_ms = (end_ms - parse_span_ms("since", since)) // step_ms * step_ms
    with cli.index() as database:
        with database.transaction() as tx:
            org_id = find_org(tx, org).org_id
        notes = explained(database, org_id, language.value, query, QueryTimes(start_ms, end_ms, step_ms))
    rows = []
    for note in notes:
        raw = "; ".join(note.gaps)
        reason = note.refusal or (f"reads {note.promql}" + (f"; {raw}" if raw else ""))
        rows.append({"part": note.part, "rule": note.rule, "rewritten": not note.refusal, "reason": reason})
    cli.output.rows(rows, _COLUMNS)
