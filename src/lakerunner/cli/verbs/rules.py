"""`lakerunner rules`: materialization, recording and alerting rules of an org, from files in Prometheus' format."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput

if TYPE_CHECKING:
    from lakerunner.index.rule_catalog import StoredRule
    from lakerunner.query.syntax.errors import ParseError
    from lakerunner.rules.definitions import Group

app = typer.Typer(
    help="Rules. `materialize` rules turn log lines and spans into metric series while they are ingested; queries that "
    "such a rule answers read its series. A file has groups of rules, as Prometheus' rule files do. Apply it with "
    "`lakerunner rules apply FILE --org ORG`.",
    no_args_is_help=True,
)
OrgOption = Annotated[str, typer.Option("--org", help="Name or id of the org.")]
FilesArgument = Annotated[list[Path], typer.Argument(help="Rule files; - is standard input.", show_default=False)]
#: How often a backfill looks how far it is, and how often it announces what is left.
_LOOK_S, _ANNOUNCE_S = 1.0, 15.0
_COLUMNS = ["name", "signal", "group", "version", "compute", "dimensions", "max_series", "created_at"]


@app.command()
@verb
def check(cli: Cli, files: FilesArgument) -> int:
    """Check rule files without applying them: every finding with its line and column. Exit code 1 if there is one."""
    from lakerunner.query.syntax.errors import ParseError
    from lakerunner.rules.check import check_groups

    findings: list[dict[str, Any]] = []
    count = 0
    for path in files:
        try:
            groups = _read(path)
            errors = [*check_groups(groups), *_evaluated_errors(cli, groups)]
            count += sum(len(group.rules) for group in groups)
        except ParseError as error:
            errors = [error]
        for each in errors:
            findings.append({"file": str(path), "line": each.line, "column": each.column, "reason": each.reason})
            typer.echo(f"{path}:{each.rendered()}", err=True)
    cli.output.result(f"{count} rules, {len(findings)} errors", {"rules": count, "errors": findings})
    return 1 if findings else 0


@app.command()
@verb
def apply(
    cli: Cli,
    files: FilesArgument,
    org: OrgOption,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", help="Namespace of groups with recording and alerting rules.")
    ] = "default",
) -> None:
    """Apply rule files to an org. Rules of a group that its file does not name any more are retired.

    Groups with `record` and `alert` rules are stored for the ruler, each in place of the one of its name. See
    `lakerunner rules groups`.

    A changed rule is a new version: what the old one stored is deleted, and the new one covers no time before now until
    `lakerunner rules backfill` has evaluated it.
    """
    from dataclasses import asdict

    from lakerunner.index.orgs import find_org
    from lakerunner.pipeline.rule_changes import apply_groups
    from lakerunner.rules.stored_groups import limits_of, store_groups

    groups = [group for path in files for group in _read(path)]
    names = [group.name for group in groups]
    if len({*names}) < len(names):
        raise BadInput("cannot apply the files: two of them have a group of the same name")
    with cli.index() as database:
        with database.transaction() as tx:
            found = find_org(tx, org)
        by = f"command line of {getpass.getuser()}"
        limits = limits_of(cli.settings.ruler)
        # Both are checked before either is stored.
        store_groups(database, found.org_id, namespace, groups, by, limits, dry_run=True)
        applied = apply_groups(
            database, found.org_id, groups, by, max_rules=cli.settings.derive.max_rules, dry_run=dry_run
        )
        evaluated = store_groups(database, found.org_id, namespace, groups, by, limits, dry_run=dry_run)
    document = {**asdict(applied), "groups": asdict(evaluated)}
    text = ", ".join(f"{len(names)} {what}" for what, names in asdict(applied).items())
    if evaluated.stored or evaluated.unchanged:
        text += f"; groups to evaluate: {len(evaluated.stored)} stored, {len(evaluated.unchanged)} unchanged"
    cli.output.result(f"{'would be ' if dry_run else ''}{text}", document)


@app.command("list")
@verb
def list_(cli: Cli, org: OrgOption) -> None:
    """List the live materialization rules of an org."""
    from lakerunner.index.orgs import find_org
    from lakerunner.index.rule_catalog import live_rules

    with cli.index() as database, database.transaction() as tx:
        rules = live_rules(tx, find_org(tx, org).org_id)
    cli.output.rows([shown(rule) for rule in rules], _COLUMNS)


@app.command()
@verb
def show(cli: Cli, name: Annotated[str, typer.Argument(help="Name of the rule.")], org: OrgOption) -> None:
    """Show a rule: its versions, and the time of the last day that it does not cover, with the reasons."""
    import time

    from lakerunner.index.orgs import find_org
    from lakerunner.index.rule_catalog import find_rule, versions_of
    from lakerunner.index.rule_coverage import coverage
    from lakerunner.model.time import NS_PER_DAY

    with cli.index() as database, database.transaction() as tx:
        org_id = find_org(tx, org).org_id
        rule = find_rule(tx, org_id, name)
        versions = versions_of(tx, org_id, name)
        now_ns = time.time_ns()
        uncovered = coverage(tx, org_id, rule, now_ns - NS_PER_DAY, now_ns)
    gaps = [
        {"from": _time(each.start_ns), "to": _time(each.end_ns), "reason": each.reason} for each in uncovered[:100]
    ]  # fmt: skip
    history = [
        {"version": each.version, "created_at": each.created_at, "retired": each.retired_reason} for each in versions
    ]
    cli.output.fields({**shown(rule), "match": rule.definition["match"], "versions": history, "uncovered": gaps})


@app.command()
@verb
def delete(cli: Cli, name: Annotated[str, typer.Argument(help="Name of the rule.")], org: OrgOption) -> None:
    """Delete a rule: it is not evaluated any more. What it stored stays until it expires."""
    from lakerunner.index.orgs import find_org
    from lakerunner.pipeline.rule_changes import delete_rule

    with cli.index() as database:
        with database.transaction() as tx:
            found = find_org(tx, org)
        rule = delete_rule(database, found.org_id, name)
    cli.output.result(f"rule {name} is deleted", shown(rule))


@app.command()
@verb
def backfill(
    cli: Cli,
    org: OrgOption,
    start: Annotated[str, typer.Option("--from", help="Start, as 2026-11-01T00:00:00Z, seconds since 1970, or 7d for "
                                       "seven days ago.")] = "7d",
    end: Annotated[str, typer.Option("--to", help="End, not included; or now.")] = "now",
    rule: Annotated[str, typer.Option(help="Only until this rule has seen everything; without it, all rules.")] = "",
    anew: Annotated[bool, typer.Option("--anew", help="Begin the rule that --rule names anew: a new version, without "
                                       "the holes that failures left. What it stored is deleted.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is done, and show how far it is.")] = True,
) -> int:  # fmt: skip
    """Evaluate rules over the rows that were stored before them. The role `backfill` does the work, on Spark.

    Nothing is counted twice: a segment is marked in the transaction that makes its samples visible, so this may be
    repeated, interrupted and resumed. derive.backfill_tasks bounds what it takes of the cluster. Rules over metrics
    that Lakerunner derives itself are refused.
    """
    import time

    from lakerunner.cli.progress import bar, progress_line, remaining
    from lakerunner.cli.times import time_ns
    from lakerunner.index.orgs import find_org
    from lakerunner.model.time import TimeRange
    from lakerunner.pipeline.backfill.request import announce, left, wanted_versions
    from lakerunner.pipeline.rule_changes import renew_rule

    if anew and not rule:
        raise BadInput("cannot begin anew: which rule?", hint="name it with --rule")
    times = TimeRange(time_ns(start), time_ns(end))
    with cli.index() as database, progress_line() as progress:
        with database.transaction() as tx:
            org_id = find_org(tx, org).org_id
        if anew:
            renew_rule(database, org_id, rule, f"command line of {getpass.getuser()}")
        versions = wanted_versions(database, org_id, rule or None)
        total = now = left(database, org_id, versions, times)
        announced_at_s, began_s = -_ANNOUNCE_S, time.monotonic()
        while now.segments:
            if time.monotonic() - announced_at_s >= _ANNOUNCE_S:
                announce(database, org_id, versions, times)
                announced_at_s = time.monotonic()
            if not wait:
                break
            done = max(0, total.rows - now.rows)
            text = f"{bar(done, total.rows)} {done:,} of {total.rows:,} rows, {now.segments:,} segments left"
            progress(f"{text} {remaining(time.monotonic() - began_s, done, total.rows)}".rstrip())
            time.sleep(_LOOK_S)
            now = left(database, org_id, versions, times)
    document = {"segments": total.segments, "rows": total.rows, "segments_left": now.segments}
    cli.output.result(f"{total.segments} segments to evaluate, {now.segments} left", document)
    return 0


def shown(rule: StoredRule) -> dict[str, Any]:
    """A rule as a row."""
    operand = rule.definition["field"]
    return {
        "name": rule.name,
        "signal": rule.signal,
        "group": rule.group_name,
        "version": rule.version,
        "compute": f"{rule.definition['compute']}({operand})" if operand else rule.definition["compute"],
        "dimensions": ", ".join(rule.definition["dimensions"]),
        "max_series": rule.definition["max_series"],
        "created_at": rule.created_at,
    }


def _evaluated_errors(cli: Cli, groups: tuple[Group, ...]) -> list[ParseError]:
    """Everything that is wrong with the recording and alerting rules."""
    from lakerunner.query.syntax.errors import ParseError
    from lakerunner.rules.evaluated import group_errors
    from lakerunner.rules.source import LANGUAGE
    from lakerunner.rules.stored_groups import limits_of

    return [
        error
        if isinstance(error, ParseError)
        else ParseError(error.message, text="", start=0, end=0, language=LANGUAGE, hint=error.hint)
        for error in group_errors(groups, limits_of(cli.settings.ruler))
    ]


def _read(path: Path) -> tuple[Group, ...]:
    from lakerunner.rules.file import read_rules

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    return read_rules(text)


def _time(time_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat()
