"""`lakerunner key`: who may do what."""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.model.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="API keys: who may do what, for which org.")


@app.command()
@verb
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="What or whom the key is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What it may do; may be repeated.")],
    org: Annotated[
        list[str], typer.Option(help="Name or id of an org it is for; may be repeated.", show_default=False)
    ] = [],  # noqa: B006  (typer never changes it)
) -> None:
    """Make a key. The secret is shown once: only its hash is kept."""
    with cli.index() as database, database.transaction() as tx:
        org_ids = [orgs.find_org(tx, wanted).org_id for wanted in org]
        made = api_keys.create_key(tx, name, scope, org_ids)
    cli.output.result(made.secret, {**asdict(made.key), "secret": made.secret})


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all keys, revoked ones too, without their secrets."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(key) for key in api_keys.list_keys(tx)]
    cli.output.rows(rows, ["key_id", "name", "scopes", "org_ids", "created_at", "revoked_at"])


@app.command()
@verb
def revoke(cli: Cli, key_id: Annotated[str, typer.Argument(help="Id of the key, from `lakerunner key list`.")]) -> None:
    """Revoke a key: from the next request on it opens nothing."""
    try:
        wanted = uuid.UUID(key_id)
    except ValueError:
        raise BadInput(f"cannot read {key_id!r} as a key's id", hint="see `lakerunner key list`") from None
    with cli.index() as database, database.transaction() as tx:
        key = api_keys.revoke_key(tx, wanted)
    cli.output.result(f"revoked key {key.name} ({key.key_id})", asdict(key))
