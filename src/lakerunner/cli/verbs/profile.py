"""`lakerunner profile`: map prefixes of buckets to orgs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.index import orgs
from lakerunner.index.profiles import StorageProfile, create_profile, list_profiles
from lakerunner.model.ids import fresh_id

app = typer.Typer(no_args_is_help=True, help="Storage profiles: map prefixes of buckets to orgs.")


@app.command()
@verb
def create(
    cli: Cli,
    bucket: Annotated[str, typer.Argument(help="Address of the bucket, such as s3://telemetry.")],
    org: Annotated[str, typer.Option(help="Name or id of the org that owns the objects.")],
    prefix: Annotated[str, typer.Option(help="Prefix of the keys of raw objects.")] = "otel-raw/",
    collector: Annotated[str, typer.Option(help="Name of the collector that writes there.")] = "default",
    signal: Annotated[
        str, typer.Option(help="logs, metrics or traces, if the keys do not say.", show_default="from the key")
    ] = "",
    region: Annotated[str, typer.Option(help="Region of the bucket.", show_default=False)] = "",
    endpoint: Annotated[str, typer.Option(help="Endpoint of an S3-compatible service.", show_default=False)] = "",
    credentials_ref: Annotated[
        str,
        typer.Option(
            help="Prefix of the variables with its credentials: ACME means ACME_ACCESS_KEY_ID and so on.",
            show_default="the credentials of this machine",
        ),
    ] = "",
) -> None:
    """Map a prefix of a bucket to an org. If several match a key, the longest prefix wins."""
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
    cli.output.result(f"mapped {profile.bucket}/{profile.prefix} to {org}", asdict(profile))


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all profiles."""
    with cli.index() as database, database.transaction() as tx:
        rows = [asdict(profile) for profile in list_profiles(tx)]
    cli.output.rows(rows, ["bucket", "prefix", "org_id", "collector", "signal", "credentials_ref"])
