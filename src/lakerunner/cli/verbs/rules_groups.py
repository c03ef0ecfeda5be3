"""`lakerunner rules groups|drop|test`: groups that the ruler evaluates, and unit tests of rule files."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Optional

import typer

from lakerunner.cli.render import shown, warn
from lakerunner.cli.verb import Cli, verb
from lakerunner.cli.verbs.rules import OrgOption, app
from lakerunner.model.errors import BadInput

_COLUMNS = ["namespace", "group", "rules", "interval_s", "evaluated_at", "evaluations", "missed", "firing", "failing"]


@app.command()
@verb
def groups(cli: Cli, org: OrgOption) -> None:
    """List the groups of recording and alerting rules of an org: how far each is evaluated, and what fires or fails."""
    from lakerunner.index.alert_states import read_states
    from lakerunner.index.orgs import find_org
    from lakerunner.index.rule_groups import list_groups
    from lakerunner.rules.render import evaluated_rules
    from lakerunner.rules.stored_groups import group_of

    with cli.index() as database, database.transaction() as tx:
        org_id = find_org(tx, org).org_id
        found = list_groups(tx, org_id)
        states = read_states(tx, org_id)
    rows = []
    for stored in found:
        group = group_of(stored)
        own = [each.state for each in states if (each.namespace, each.group_name) == (stored.namespace, stored.name)]
        alerts = [alert for state in own for alert in state.get("alerts", ())]  # type: ignore[attr-defined]
        at_ms = stored.evaluated_at_ms
        rows.append(
            {
                "namespace": stored.namespace,
                "group": stored.name,
                "rules": len(evaluated_rules(group)),
                "interval_s": group.interval_s or cli.settings.ruler.interval_s,
                "evaluated_at": None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC),
                "evaluations": stored.evaluations,
                "missed": stored.missed,
                "firing": sum(alert["state"] == "firing" for alert in alerts),
                "failing": sum(state.get("health") == "err" for state in own),
            }
        )
    cli.output.rows(rows, _COLUMNS)


@app.command()
@verb
def drop(
    cli: Cli,
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    org: OrgOption,
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace of the group.")] = "default",
) -> None:
    """Delete a group of recording and alerting rules. What it recorded stays until it expires; its alerts end."""
    from lakerunner.index.orgs import find_org
    from lakerunner.index.rule_groups import delete_groups

    with cli.index() as database, database.transaction() as tx:
        delete_groups(tx, find_org(tx, org).org_id, namespace, group)
    cli.output.result(f"group {group} is deleted", {"namespace": namespace, "group": group})


@app.command()
@verb
def test(
    cli: Cli,
    files: Annotated[list[Path], typer.Argument(help="Test files, of either format.", show_default=False)],
    run: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--run", help="Run only tests whose name matches this regular expression.", show_default=False),
    ] = None,
) -> int:
    """Run unit tests of rule files. Exit code 1 if one fails, with what differs.

    Recording and alerting rules: the format of `promtool test rules`, with the same series, alerts and messages.
    Materialization rules: pairs of rows and the series that rules make of them, evaluated as ingest does it:

        rules shop.yaml
        test errors by region
        logs
          1s   {"service": "shop", "region": "eu", "message": "error"}
        series
          errors_total{service_name="shop", region="eu"} 1

    A series has a value per bucket of ten seconds; `_` is none. docs/materialization.md has the whole format.
    """
    from lakerunner.pipeline.derive.pair_tests import run_pairs
    from lakerunner.rules.unit_tests.pairs import is_pairs
    from lakerunner.rules.unit_tests.promtool import FileReport, is_promtool, run_file

    try:
        only = re.compile(run) if run else None
    except re.error as error:
        raise BadInput(f"cannot read --run {run!r}: {error}") from None
    failed = 0
    documents = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read {path}: {error}") from None
        if is_pairs(text):
            failures, ran = run_pairs(path, only)
            report = FileReport(str(path), tuple(failures), (), ran)
        elif is_promtool(text):
            report = run_file(path, only)
        else:
            raise BadInput(
                f"cannot read {path}: it is no test of rules",
                hint="promtool's format needs `rule_files` and `tests`; pairs of rows and series begin with "
                "`rules FILE`",
            )
        failed += bool(report.failures)
        for warning in report.warnings:
            warn(f"{path}: {warning}")
        for failure in report.failures:
            # Line by line, because what a test says may hold anything.
            for line in failure.splitlines():
                typer.echo(" " * (len(line) - len(line.lstrip(" "))) + shown(line.lstrip(" ")), err=True)
        documents.append({"file": str(path), "tests": report.tests, "failures": list(report.failures)})
    tests = sum(int(str(each["tests"])) for each in documents)
    cli.output.result(f"{len(files) - failed} of {len(files)} files passed, {tests} tests", {"files": documents})
    return 1 if failed else 0
