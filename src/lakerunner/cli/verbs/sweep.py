"""`lakerunner sweep`: one round of the sweeper, or what it would delete and why; and the ledger of what it did."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakerunner.cli.render import OutputFormat
from lakerunner.cli.verb import Cli, verb

if TYPE_CHECKING:
    from lakerunner.ops.sweeping.found import Finding

_COLUMNS = ["what", "signal", "name", "rows", "bytes", "age_s", "reason"]


@verb
def sweep(
    cli: Cli,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted and why; change nothing.")
    ] = False,
    listing: Annotated[
        bool,
        typer.Option(help="Compare the bucket with the index too: delete orphans, mark segments without objects."),
    ] = True,
    limit: Annotated[int, typer.Option("-n", min=1, max=100_000, help="Lines shown per kind.")] = 1_000,
    ledger: Annotated[bool, typer.Option("--ledger", help="Show what was deleted before, the latest first.")] = False,
) -> None:
    """Delete expired and superseded segments, orphaned objects and empty partitions, once.

    The sweeper of `serve` does this every minute (upkeep.interval_s), and lists the bucket once a day
    (sweep.listing_interval_s). Objects are deleted sweep.grace_s after their segment ended, so that no running query
    misses them. It is safe to run both at once.
    """
    from lakerunner.index.sweep_ledger import list_entries
    from lakerunner.ops.sweeping.round import dry_run as report_round
    from lakerunner.ops.sweeping.round import sweep_round
    from lakerunner.store.config import StoreConfig
    from lakerunner.store.open import open_store

    if ledger:
        with cli.index() as database, database.transaction() as tx:
            entries = list_entries(tx, limit)
        cli.output.rows(entries, ["at", "what", "signal", "name", "row_count", "size_bytes", "reason"])
        return
    found: list[Finding] = []

    def keep(finding: Finding) -> None:
        if sum(each.what == finding.what for each in found[-limit:]) < limit:
            found.append(finding)

    store = open_store(StoreConfig.of(cli.settings))
    with cli.index() as database:
        if dry_run:
            swept = report_round(cli.settings, database, store, listing=listing, limit=limit, on_found=keep)
        else:
            swept = sweep_round(cli.settings, database, store, listing=listing, on_found=keep)
    if cli.output.kind is OutputFormat.JSON:
        totals = {what: {"things": count, "bytes": swept.bytes[what]} for what, count in sorted(swept.things.items())}
        cli.output.document({"dry_run": dry_run, "totals": totals, "found": [asdict(each) for each in found]})
        return
    cli.output.rows([{**asdict(each), "age_s": round(each.age_s)} for each in found], _COLUMNS)
