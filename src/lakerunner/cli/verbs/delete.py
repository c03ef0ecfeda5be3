"""`lakerunner delete`: delete rows of an org by a selector and a time range, and follow what becomes of it."""

from __future__ import annotations

import getpass
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakerunner.cli.render import OutputFormat
from lakerunner.cli.times import time_ns
from lakerunner.cli.verb import Cli, ConfigOption, OutputOption, SetOption, role_command, verb
from lakerunner.model.errors import BadInput
from lakerunner.ops.roles import ROLES

if TYPE_CHECKING:
    from lakerunner.index.deletions import Deletion

app = typer.Typer(
    help="Delete rows on request. With --org, --signal, --match, --from and --to: request a deletion. Its rows are "
    "hidden from queries at once; segments are rewritten without them after delete.wait_s, and until then it can be "
    "cancelled. Without options, run the role that rewrites segments, on Spark."
)
_COLUMNS = ["deletion_id", "signal", "selector", "state", "segments", "segments_done", "rows_deleted", "created_at"]
OrgOption = Annotated[str, typer.Option("--org", help="Name or id of the org.")]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    org: Annotated[str, typer.Option(help="Name or id of the org.")] = "",
    signal: Annotated[str, typer.Option(help="logs, metrics or traces.")] = "",
    match: Annotated[
        str,
        typer.Option(help="What to delete: a PromQL selector for metrics, a LogQL selector with line filters for logs, "
                     "matchers on attributes for traces."),
    ] = "",
    start: Annotated[str, typer.Option("--from", help="Start, as 2026-11-01T00:00:00Z, seconds since 1970, or 7d for "
                                       "seven days ago.")] = "",
    end: Annotated[str, typer.Option("--to", help="End, not included; or now.")] = "now",
    now: Annotated[bool, typer.Option("--now", help="Begin at once: it cannot be cancelled.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:  # fmt: skip
    if context.invoked_subcommand is not None:
        return
    if not (org or signal or match or start):
        role_command(next(role for role in ROLES if role.name == "delete"))(config=config, set_=set_)
    _request(org, signal, match, start, end, now, config=config, set_=set_, output=output)


@verb
def _request(cli: Cli, org: str, signal: str, match: str, start: str, end: str, now: bool) -> None:
    from lakerunner.index.deletions import find_deletion
    from lakerunner.index.orgs import find_org
    from lakerunner.pipeline.delete.request import request_deletion
    from lakerunner.query.deletable import deletion_request

    given = {"--org": org, "--signal": signal, "--match": match, "--from": start}
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise BadInput(f"cannot request a deletion without {', '.join(missing)}", hint="see `lakerunner delete --help`")
    wait_s = 0.0 if now else cli.settings.delete.wait_s
    with cli.index() as database:
        with database.transaction() as tx:
            found = find_org(tx, org)
        by = f"command line of {getpass.getuser()}"
        wanted, may_hold = deletion_request(
            database, found.org_id, signal, match, time_ns(start), time_ns(end), by
        )  # fmt: skip
        with database.transaction() as tx:
            made = find_deletion(tx, found.org_id, request_deletion(tx, wanted, wait_s, may_hold))
    cli.output.result(
        f"deletion {made.deletion_id} hides its rows now; it rewrites {made.segments} segments"
        f"{'' if now else f' in {wait_s:g} s'}",
        _document(made),
    )


@app.command("list")
@verb
def list_(cli: Cli, org: OrgOption) -> None:
    """List the deletions of an org, the latest first."""
    from lakerunner.index.deletions import list_deletions
    from lakerunner.index.orgs import find_org

    with cli.index() as database, database.transaction() as tx:
        rows = list_deletions(tx, find_org(tx, org).org_id)
    cli.output.rows([_document(each) for each in rows], _COLUMNS)


@app.command()
@verb
def show(
    cli: Cli, deletion_id: Annotated[str, typer.Argument(help="Id from `delete list`.")], org: OrgOption
) -> None:  # fmt: skip
    """Show a deletion and its receipt: rows of every segment before and after, checksums of what was written,
    what became of derived metrics by hours, and those that still count the rows."""
    from lakerunner.index.deletions import find_deletion, receipt
    from lakerunner.index.orgs import find_org
    from lakerunner.pipeline.delete.still_counted import derived_windows, still_counted

    with cli.index() as database, database.transaction() as tx:
        found = find_deletion(tx, find_org(tx, org).org_id, _id(deletion_id))
        segments = [dict(row) for row in receipt(tx, found.deletion_id)]
        derived, windows = still_counted(tx, found), derived_windows(tx, found)
    cli.output.fields(
        {**_document(found), "receipt": segments, "still_counted_by": derived, "derived_windows": windows}
    )


@app.command()
@verb
def cancel(
    cli: Cli, deletion_id: Annotated[str, typer.Argument(help="Id from `delete list`.")], org: OrgOption
) -> None:  # fmt: skip
    """Cancel a pending deletion: its rows can be queried again."""
    from lakerunner.index.deletions import cancel_deletion
    from lakerunner.index.orgs import find_org

    with cli.index() as database, database.transaction() as tx:
        found = cancel_deletion(tx, find_org(tx, org).org_id, _id(deletion_id))
    cli.output.result(f"deletion {found.deletion_id} is cancelled", _document(found))


def _document(deletion: Deletion) -> dict[str, Any]:
    return {name: getattr(deletion, name) for name in deletion.__slots__}


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        hint = "see `lakerunner delete list`"
        raise BadInput(f"cannot read {text[:50]!r} as the id of a deletion", hint=hint) from None
