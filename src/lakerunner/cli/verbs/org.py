"""`lakerunner org`: create and list orgs, and set their limits and retention."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from lakerunner.cli.verb import Cli, assignments, verb
from lakerunner.index import org_limits, orgs

app = typer.Typer(no_args_is_help=True, help="Orgs, the owners of data: create, list, set limits and retention.")

LimitsOption = Annotated[
    Optional[list[str]],  # noqa: UP045  (typer reads this form)
    typer.Option("--set", "-s", help="A limit of the org, such as max_series=10000, or a setting; may be repeated."),
]


@app.command()
@verb
def create(cli: Cli, name: Annotated[str, typer.Argument(help="Name of the org; its id is generated.")]) -> None:
    """Create an org."""
    with cli.index() as database, database.transaction() as tx:
        org = orgs.create_org(tx, name)
    cli.output.result(f"created org {org.name} ({org.org_id})", org)


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all orgs."""
    with cli.index() as database, database.transaction() as tx:
        rows = orgs.list_orgs(tx)
    cli.output.rows(rows, ["org_id", "name", "created_at"])


@app.command()
@verb
def limits(
    cli: Cli,
    org: Annotated[str, typer.Argument(help="Name or id of the org.")],
    set_: LimitsOption = None,
    unset: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--unset", help="A limit to remove, so that the setting applies again; may be repeated."),
    ] = None,
) -> None:
    """Show and change the query limits of an org. Every query API applies changes within seconds."""
    with cli.index() as database, database.transaction() as tx:
        found = orgs.find_org(tx, org)
        org_limits.set_limits(tx, found.org_id, assignments(set_ or []))
        org_limits.unset_limits(tx, found.org_id, unset or [])
        own = org_limits.read_limits(tx, found.org_id)
    rows = [
        {"limit": name, "value": own.get(name, getattr(cli.settings.api, name)), "own": name in own}
        for name in org_limits.LIMIT_NAMES
    ]
    cli.output.rows(rows, ["limit", "value", "own"])


@app.command()
@verb
def retention(
    cli: Cli,
    org: Annotated[str, typer.Argument(help="Name or id of the org.")],
    set_: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--set",
            "-s",
            help="How long to keep a signal or tier, as logs=30d, metrics.1h=2y or "
            "traces=forever; or a setting. May be repeated.",
        ),
    ] = None,
    unset: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--unset", help="A signal or tier, so that the setting applies again; may be repeated."),
    ] = None,
) -> None:
    """Show and change how long an org keeps each signal and tier of metrics, by the time of the rows.

    The sweeper ends older segments within a minute, and deletes their objects sweep.grace_s later. It cannot be undone.
    """
    from lakerunner.index import retention as retain

    wanted = {retain.kept_named(name): retain.read_length(text) for name, text in assignments(set_ or []).items()}
    removed = [retain.kept_named(name) for name in unset or []]
    with cli.index() as database, database.transaction() as tx:
        found = orgs.find_org(tx, org)
        retain.set_keep(tx, found.org_id, wanted)
        retain.unset_keep(tx, found.org_id, removed)
        own = retain.own_keep_s(tx, found.org_id)
    defaults = retain.default_keep_s(cli.settings.retention)
    rows = [
        {"what": str(kept), "keep_s": own.get(kept, defaults[kept]) or "forever", "own": kept in own}
        for kept in retain.ALL_KEPT
    ]
    cli.output.rows(rows, ["what", "keep_s", "own"])
