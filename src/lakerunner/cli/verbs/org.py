"""`lakerunner org`: whose data it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.index import orgs

app = typer.Typer(no_args_is_help=True, help="Orgs: whose data it is.")


@app.command()
@verb
def create(cli: Cli, name: Annotated[str, typer.Argument(help="A name for people; ids are made.")]) -> None:
    """Add an org."""
    with cli.index() as database, database.transaction() as tx:
        org = orgs.create_org(tx, name)
    cli.output.result(f"created org {org.name} ({org.org_id})", asdict(org))


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all orgs."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(org) for org in orgs.list_orgs(tx)]
    cli.output.rows(rows, ["org_id", "name", "created_at"])
