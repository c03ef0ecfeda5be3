"""`lakerunner ingest`: run the ingest role, backfill missed objects, inspect what was not stored as sent."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Annotated

import typer

from lakerunner.cli.progress import progress_line
from lakerunner.cli.render import OutputFormat
from lakerunner.cli.verb import Cli, ConfigOption, SetOption, role_command, verb
from lakerunner.index import ledger
from lakerunner.intake.rejections import RejectedKind, list_rejected
from lakerunner.model.errors import BadInput, Missing
from lakerunner.ops.roles import ROLES

app = typer.Typer(
    help="Turn raw objects of all signals into segments, on Spark. Without a verb, run the role. "
    "The verbs backfill missed objects, and show what was rejected, changed and quarantined."
)
quarantine = typer.Typer(no_args_is_help=True, help="Objects that could not be read, each with the reason.")
app.add_typer(quarantine, name="quarantine")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, config: ConfigOption = None, set_: SetOption = None) -> None:
    if context.invoked_subcommand is None:
        role_command(next(role for role in ROLES if role.name == "ingest"))(config=config, set_=set_)


@app.command()
@verb
def backfill(
    cli: Cli,
    prefix: Annotated[str, typer.Argument(help="Prefix of the keys, such as otel-raw/ or otel-raw/year=2026/.")],
    bucket: Annotated[str, typer.Option(help="Address of the bucket.", show_default="store.url")] = "",
    start_after: Annotated[str, typer.Option(help="Continue after this key.", show_default="from the start")] = "",
) -> None:
    """List a bucket and ingest the objects that the ledger does not know. Safe to repeat.

    For objects that were written before intake was connected, or while it was down. For example:

        lakerunner ingest backfill otel-raw/year=2026/
    """
    from lakerunner.intake.backfill import BackfillProgress
    from lakerunner.intake.backfill import backfill as run_backfill
    from lakerunner.intake.buckets import own_bucket
    from lakerunner.intake.record import Recorder

    with cli.index() as database, progress_line() as line:

        def show(progress: BackfillProgress) -> None:
            line(f"{progress.listed:,} listed, {progress.counts['recorded']:,} new")

        recorder = Recorder(cli.settings, database)
        try:
            done = run_backfill(
                recorder, bucket or own_bucket(cli.settings), prefix, start_after=start_after, on_page=show
            )
        finally:
            recorder.close()
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(done.counts.items()))
    cli.output.result(f"{done.listed:,} listed: {counts or 'no objects'}", done)


@app.command()
@verb
def rejected(
    cli: Cli,
    kind: Annotated[RejectedKind | None, typer.Option(help="Only this kind.", show_default="all")] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Number of rows.")] = 100,
) -> None:
    """List events that were not recorded in the ledger, and why: unmapped keys, foreign buckets, bad events."""
    with cli.index() as database, database.transaction() as tx:
        rows = list_rejected(tx, kind, limit)
    cli.output.rows(rows, ["kind", "bucket", "key", "reason", "times", "last_at"])


@app.command()
@verb
def reports(
    cli: Cli,
    reason: Annotated[str | None, typer.Option(help="Only objects with this reason.", show_default="all")] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Number of objects.")] = 100,
) -> None:
    """List objects of which rows were rejected or changed while the rest landed: counts by reason, and a sample."""
    from lakerunner.index.row_reports import list_reports

    with cli.index() as database, database.transaction() as tx:
        found = list_reports(tx, reason, limit)
    if cli.output.kind is OutputFormat.JSON:
        cli.output.document([asdict(each) for each in found])
        return
    rows: list[dict[str, object]] = []
    for each in found:
        for report in each.reports:
            sample = next(iter(report.samples), None)
            shown = ": ".join(filter(None, (sample.where, sample.excerpt))) if sample else None
            about = {"object_id": each.object_id, "signal": each.signal, "key": each.key, "sample": shown}
            rows.append({**about, "effect": report.effect, "reason": report.reason, "rows": report.rows})
    cli.output.rows(rows, ["object_id", "signal", "key", "effect", "reason", "rows", "sample"])


@quarantine.command("list")
@verb
def list_(cli: Cli, limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Number of rows.")] = 100) -> None:
    """List the latest quarantined objects, each with the reason."""
    with cli.index() as database, database.transaction() as tx:
        rows = ledger.quarantined(tx, limit=limit)
    cli.output.rows(rows, ["object_id", "signal", "key", "size_bytes", "reason", "ended_at"])


@quarantine.command()
@verb
def show(cli: Cli, object_id: Annotated[str, typer.Argument(help="Id from `quarantine list`.")]) -> None:
    """Show one object: its location, why it could not be read, and a sample of the failing part."""
    wanted = _id(object_id)
    with cli.index() as database, database.transaction() as tx:
        found = ledger.find_quarantined(tx, wanted)
    cli.output.fields(found)


@quarantine.command()
@verb
def retry(
    cli: Cli,
    object_ids: Annotated[list[str] | None, typer.Argument(help="Ids of objects.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Retry all quarantined objects.")] = False,
) -> None:
    """Retry objects once the cause is fixed: a limit was raised, or a new release can read them."""
    from lakerunner.bus.announce import announce

    if bool(object_ids) == every:
        raise BadInput(
            "cannot retry: give either ids or --all", hint="see `ingest quarantine list` for ids, or use --all"
        )
    with cli.index() as database, database.transaction() as tx:
        released = ledger.release_quarantined(tx, None if every else [_id(text) for text in object_ids or []])
        announce(tx, released)
    if object_ids and len(released) < len(set(object_ids)):
        raise Missing("cannot retry all objects: some are not in quarantine", hint="see `ingest quarantine list`")
    cli.output.result(f"{len(released)} objects will be retried", {"released": [o.key for o in released]})


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise BadInput(f"cannot read {text!r} as an object id", hint="see `ingest quarantine list`") from None
