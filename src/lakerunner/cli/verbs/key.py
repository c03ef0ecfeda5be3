"""`lakerunner key`: create, list and revoke API keys."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from lakerunner.cli.render import fields_of
from lakerunner.cli.verb import Cli, verb
from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.model.errors import BadInput

app = typer.Typer(no_args_is_help=True, help="API keys: create, list, revoke.")


@app.command()
@verb
def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Name of the key, such as who uses it.")],
    scope: Annotated[list[Scope], typer.Option(help="What the key permits; may be repeated.")],
    org: Annotated[
        list[str],
        typer.Option(
            help="Name or id of an org that the key opens; may be repeated. An admin key without one is for all orgs.",
            show_default=False,
        ),
    ] = [],  # noqa: B006  (typer never changes it)
) -> None:
    """Create a key. The secret is shown only once, because only its hash is stored.

    For example:

        lakerunner key create grafana --scope query --org default
    """
    with cli.index() as database, database.transaction() as tx:
        org_ids = [orgs.find_org(tx, wanted).org_id for wanted in org]
        created = api_keys.create_key(tx, name, scope, org_ids)
    cli.output.result(created.secret, {**fields_of(created.key), "secret": created.secret})


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all keys, including revoked ones, without their secrets."""
    with cli.index() as database, database.transaction() as tx:
        rows = api_keys.list_keys(tx)
    cli.output.rows(rows, ["key_id", "name", "scopes", "org_ids", "created_at", "revoked_at"])


@app.command()
@verb
def revoke(cli: Cli, key_id: Annotated[str, typer.Argument(help="Id of the key, from `lakerunner key list`.")]) -> None:
    """Revoke a key. It is refused from the next request on."""
    try:
        wanted = uuid.UUID(key_id)
    except ValueError:
        raise BadInput(f"cannot read {key_id!r} as a key id", hint="see `lakerunner key list`") from None
    with cli.index() as database, database.transaction() as tx:
        key = api_keys.revoke_key(tx, wanted)
    cli.output.result(f"revoked key {key.name} ({key.key_id})", key)
