"""`lakerunner ingest`: what came, what could not be read, and what nobody told us of."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lakerunner.bus.announce import announce
from lakerunner.cli.verb import Cli, ConfigOption, SetOption, verb
from lakerunner.cli.verbs.role import role_command
from lakerunner.index import ledger
from lakerunner.intake.backfill import BackfillProgress
from lakerunner.intake.backfill import backfill as run_backfill
from lakerunner.intake.buckets import own_bucket
from lakerunner.intake.record import Recorder
from lakerunner.intake.rejected import RejectedKind, list_rejected
from lakerunner.model.errors import BadInput, Missing
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.stages import worker_role

app = typer.Typer(
    help="Turn raw objects of all signals into segments, on Spark: without a verb, the role itself. "
    "Verbs: what came, what could not be read, what nobody told us of."
)
quarantine = typer.Typer(no_args_is_help=True, help="Objects that could not be read, each with its reason.")
app.add_typer(quarantine, name="quarantine")


@app.callback(invoke_without_command=True)
def run(context: typer.Context, config: ConfigOption = None, set_: SetOption = None) -> None:
    if context.invoked_subcommand is None:
        role_command(worker_role(INGEST))(config=config, set_=set_)


@app.command()
@verb
def backfill(
    cli: Cli,
    prefix: Annotated[str, typer.Argument(help="What keys begin with, as otel-raw/ or otel-raw/year=2026/.")],
    bucket: Annotated[str, typer.Option(help="The bucket's address.", show_default="that of store.url")] = "",
    start_after: Annotated[str, typer.Option(help="Go on after this key.", show_default="the first")] = "",
) -> None:
    """List a bucket and take in what the ledger does not know. Running it again is harmless."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with cli.index() as database, Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("listing", total=None)

        def show(progress: BackfillProgress) -> None:
            bar.update(task, description=f"{progress.listed:,} listed, {progress.counts['recorded']:,} new")

        recorder = Recorder(cli.settings, database)
        try:
            done = run_backfill(
                recorder, bucket or own_bucket(cli.settings), prefix, start_after=start_after, on_page=show
            )
        finally:
            recorder.close()
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(done.counts.items()))
    cli.output.result(f"{done.listed:,} listed: {counts or 'nothing there'}", {**asdict(done)})


@app.command()
@verb
def rejected(
    cli: Cli,
    kind: Annotated[RejectedKind | None, typer.Option(help="Only this kind.", show_default="all")] = None,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many.")] = 100,
) -> None:
    """List events that brought no object into the ledger, and why: unmapped keys, foreign buckets, bad events."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(row) for row in list_rejected(tx, kind, limit)]
    cli.output.rows(rows, ["kind", "bucket", "key", "reason", "times", "last_at"])


@quarantine.command("list")
@verb
def list_(cli: Cli, limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many.")] = 100) -> None:
    """List the latest, with the reason."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(row) for row in ledger.quarantined(tx, limit=limit)]
    cli.output.rows(rows, ["object_id", "signal", "key", "size_bytes", "reason", "ended_at"])


@quarantine.command()
@verb
def show(cli: Cli, object_id: Annotated[str, typer.Argument(help="Its id, from `quarantine list`.")]) -> None:
    """Show one: where it is, why it was not read, and a sample of the place."""
    wanted = _id(object_id)
    with cli.index() as database, database.transaction() as tx:
        found = ledger.find_quarantined(tx, wanted)
    document = asdict(found)
    cli.output.result("\n".join(f"{name}: {value}" for name, value in document.items()), document)


@quarantine.command()
@verb
def retry(
    cli: Cli,
    object_ids: Annotated[list[str] | None, typer.Argument(help="Ids of objects.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are in quarantine.")] = False,
) -> None:
    """Try objects again, after what was wrong is mended: a limit raised, a release that reads them."""
    if bool(object_ids) == every:
        raise BadInput("cannot tell which objects to retry", hint="name their ids, or say --all")
    with cli.index() as database, database.transaction() as tx:
        released = ledger.release_quarantined(tx, None if every else [_id(text) for text in object_ids or []])
        announce(tx, released)
    if object_ids and len(released) < len(set(object_ids)):
        raise Missing("cannot retry all of these: some are not in quarantine", hint="see `ingest quarantine list`")
    cli.output.result(f"{len(released)} objects will be tried again", {"released": [o.key for o in released]})


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise BadInput(f"cannot read {text!r} as an object's id", hint="see `ingest quarantine list`") from None
