"""`lakerunner profile`: which prefix of which bucket belongs to whom."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.index import orgs
from lakerunner.index.profiles import StorageProfile, create_profile, list_profiles
from lakerunner.model.ids import fresh_id

app = typer.Typer(no_args_is_help=True, help="Storage profiles: which prefix of which bucket belongs to whom.")


@app.command()
@verb
def create(
    cli: Cli,
    bucket: Annotated[str, typer.Argument(help="The bucket's address, as s3://telemetry.")],
    org: Annotated[str, typer.Option(help="Name or id of the org that its objects belong to.")],
    prefix: Annotated[str, typer.Option(help="What keys of its raw objects begin with.")] = "otel-raw/",
    collector: Annotated[str, typer.Option(help="A name for who writes there.")] = "default",
    signal: Annotated[
        str, typer.Option(help="logs, metrics or traces, where keys do not tell.", show_default="from the key")
    ] = "",
    region: Annotated[str, typer.Option(help="Region of the bucket.", show_default=False)] = "",
    endpoint: Annotated[str, typer.Option(help="Address of a compatible service.", show_default=False)] = "",
    credentials_ref: Annotated[
        str,
        typer.Option(
            help="What the variables with its credentials begin with: ACME means ACME_ACCESS_KEY_ID and so on.",
            show_default="the machine's own",
        ),
    ] = "",
) -> None:
    """Map a prefix of a bucket to an org. Where several fit a key, the longest prefix wins."""
    with cli.index() as database, database.transaction() as tx:
        profile = StorageProfile(
            profile_id=fresh_id(),
            org_id=orgs.find_org(tx, org).org_id,
            collector=collector,
            bucket=bucket,
            prefix=prefix,
            signal=signal or None,
            region=region,
            endpoint=endpoint,
            credentials_ref=credentials_ref,
        )
        create_profile(tx, profile)
    cli.output.result(f"{profile.bucket}/{profile.prefix} belongs to {org} from now on", asdict(profile))


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all profiles."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(profile) for profile in list_profiles(tx)]
    cli.output.rows(rows, ["bucket", "prefix", "org_id", "collector", "signal", "credentials_ref"])
