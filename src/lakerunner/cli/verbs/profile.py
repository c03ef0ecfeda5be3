"""`lakerunner profile`: map prefixes of buckets to orgs."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from lakerunner.cli.verb import Cli, verb
from lakerunner.model.errors import BadInput
from lakerunner.model.ids import fresh_id

app = typer.Typer(no_args_is_help=True, help="Storage profiles: map prefixes of buckets to orgs.")

_ORG = "Name or id of the org that owns the objects."
_COLLECTOR = "Name of the collector that writes there."
_SIGNAL = "logs, metrics or traces, if the keys do not say."
_REGION = "Region of the bucket."
_ENDPOINT = "Endpoint of an S3-compatible service."
_DELETE_RAW = "Seconds after its ingest at which a raw object is deleted, at least 600."
_CREDENTIALS = "Prefix of the variables with its credentials: ACME means ACME_ACCESS_KEY_ID and so on."
ProfileId = Annotated[str, typer.Argument(help="Id of the profile, from `lakerunner profile list`.")]


@app.command()
@verb
def create(
    cli: Cli,
    bucket: Annotated[str, typer.Argument(help="Address of the bucket, such as s3://telemetry.")],
    org: Annotated[str, typer.Option(help=_ORG)],
    prefix: Annotated[str, typer.Option(help="Prefix of the keys of raw objects.")] = "otel-raw/",
    collector: Annotated[str, typer.Option(help=_COLLECTOR)] = "default",
    signal: Annotated[str, typer.Option(help=_SIGNAL, show_default="from the key")] = "",
    region: Annotated[str, typer.Option(help=_REGION, show_default=False)] = "",
    endpoint: Annotated[str, typer.Option(help=_ENDPOINT, show_default=False)] = "",
    credentials_ref: Annotated[
        str, typer.Option(help=_CREDENTIALS, show_default="the credentials of this machine")
    ] = "",
    delete_raw_after_s: Annotated[float | None, typer.Option(help=_DELETE_RAW, show_default="kept")] = None,
) -> None:
    """Map a prefix of a bucket to an org. If several match a key, the longest prefix wins.

    For example:

        lakerunner profile create s3://telemetry --prefix otel-raw/shop/ --org shop
    """
    from lakerunner.index import orgs, profiles

    with cli.index() as database, database.transaction() as tx:
        profile = profiles.create_profile(
            tx,
            profiles.StorageProfile(
                profile_id=fresh_id(),
                org_id=orgs.find_org(tx, org).org_id,
                collector=collector,
                bucket=bucket,
                prefix=prefix,
                signal=signal or None,
                region=region,
                endpoint=endpoint,
                credentials_ref=credentials_ref,
                delete_raw_after_s=delete_raw_after_s,
            ),
        )
    cli.output.result(f"mapped {profile.bucket}/{profile.prefix} to {org}", profile)


@app.command("list")
@verb
def list_(cli: Cli) -> None:
    """List all profiles."""
    from lakerunner.index.profiles import list_profiles

    with cli.index() as database, database.transaction() as tx:
        rows = list_profiles(tx)
    cli.output.rows(rows, ["profile_id", "bucket", "prefix", "org_id", "collector", "signal", "credentials_ref"])


@app.command()
@verb
def change(
    cli: Cli,
    profile_id: ProfileId,
    org: Annotated[str | None, typer.Option(help=_ORG, show_default="unchanged")] = None,
    collector: Annotated[str | None, typer.Option(help=_COLLECTOR, show_default="unchanged")] = None,
    signal: Annotated[
        str | None, typer.Option(help=f"{_SIGNAL} Empty means from the key.", show_default="unchanged")
    ] = None,
    region: Annotated[str | None, typer.Option(help=_REGION, show_default="unchanged")] = None,
    endpoint: Annotated[str | None, typer.Option(help=_ENDPOINT, show_default="unchanged")] = None,
    credentials_ref: Annotated[str | None, typer.Option(help=_CREDENTIALS, show_default="unchanged")] = None,
    delete_raw_after_s: Annotated[
        float | None, typer.Option(help=f"{_DELETE_RAW} 0 keeps them.", show_default="unchanged")
    ] = None,
) -> None:
    """Change a profile. Objects that are already in the ledger keep their org and collector."""
    from lakerunner.index import orgs, profiles

    given: dict[str, object] = {
        "collector": collector, "signal": signal, "region": region, "endpoint": endpoint,
        "credentials_ref": credentials_ref, "delete_raw_after_s": delete_raw_after_s,
    }  # fmt: skip
    changes = {name: value for name, value in given.items() if value is not None}
    if signal == "":
        changes["signal"] = None
    if delete_raw_after_s == 0:
        changes["delete_raw_after_s"] = None
    with cli.index() as database, database.transaction() as tx:
        if org is not None:
            changes["org_id"] = orgs.find_org(tx, org).org_id
        profile = profiles.change_profile(tx, _id(profile_id), changes)
    cli.output.result(f"changed the profile of {profile.bucket}/{profile.prefix}", profile)


@app.command()
@verb
def remove(cli: Cli, profile_id: ProfileId) -> None:
    """Remove a profile. New objects under its prefix belong to the next longest prefix that matches, if any."""
    from lakerunner.index import profiles

    with cli.index() as database, database.transaction() as tx:
        profile = profiles.remove_profile(tx, _id(profile_id))
    cli.output.result(f"removed the profile of {profile.bucket}/{profile.prefix}", profile)


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise BadInput(f"cannot read {text!r} as a profile id", hint="see `lakerunner profile list`") from None
