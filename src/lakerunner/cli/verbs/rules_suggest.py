"""`lakerunner rules suggest`: materialization rules that would answer queries that were asked, and what they cost."""

from __future__ import annotations

from typing import Annotated

import typer

from lakerunner.cli.render import warn
from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs.rules import OrgOption, app


@app.command()
@verb
def suggest(
    cli: Cli,
    org: OrgOption,
    days: Annotated[int, typer.Option(help="How many days of the query log to read, today included.", min=1)] = 7,
    limit: Annotated[int, typer.Option(help="The most rules to propose.", min=1, max=100)] = 10,
    why: Annotated[bool, typer.Option("--why", help="Also say why no rule is proposed for other queries.")] = False,
) -> None:
    """Propose materialization rules for the LogQL and TraceQL metric queries that an org asks most expensively.

    Reads the query log (api.query_log), makes rules of the queries, asks the guards which queries each would answer,
    and prints those worth most as a rule file, with the rows, bytes and CPU time that these queries took. Review the
    dimensions, which decide how many series a rule makes, and apply it:

        lakerunner rules suggest --org shop > suggested.yaml && lakerunner rules apply suggested.yaml --org shop

    Queries whose range or step is no multiple of 10 s are never answered by a rule; Grafana's minimal interval can be
    set to 10s. What reading the rule's series will cost instead is not subtracted.
    """
    from lakerunner.index.orgs import find_org
    from lakerunner.index.query_log import logged_queries
    from lakerunner.index.rule_catalog import live_rules
    from lakerunner.rules.suggest import MAX_QUERIES, to_file
    from lakerunner.rules.suggest import suggest as suggested

    with cli.index() as database, database.transaction() as tx:
        org_id = find_org(tx, org).org_id
        queries = logged_queries(tx, org_id, days, MAX_QUERIES)
        live = live_rules(tx, org_id)
    made, unanswered = suggested(queries, live, limit)
    if why:
        for each in unanswered:
            warn(f"{each.query.query}: {each.reason}")
    if not made:
        warn(f"no rule to propose: of {len(queries)} logged queries, none is left that a rule could answer")
    document = {
        "file": to_file(made, days),
        "suggestions": [each.to_json() for each in made],
        "unanswered": [{"query": each.query.query, "reason": each.reason} for each in unanswered],
    }
    cli.output.lines(to_file(made, days).splitlines(), document)
