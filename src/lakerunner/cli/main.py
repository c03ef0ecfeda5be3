"""The `lakerunner` command and its table of verbs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from lakerunner import __version__
from lakerunner.cli.verb import role_command
from lakerunner.cli.verbs import (
    bus,
    config,
    delete,
    demo,
    deployment,
    ingest,
    key,
    org,
    profile,
    query,
    rules,
    simulate,
    spark,
    sweep,
)
from lakerunner.cli.verbs import query_logs as _query_logs  # noqa: F401  (adds verbs to `query`)
from lakerunner.cli.verbs import query_traces as _query_traces  # noqa: F401  (adds verbs to `query`)
from lakerunner.cli.verbs import rules_explain as _rules_explain  # noqa: F401  (adds a verb to `rules`)
from lakerunner.cli.verbs import rules_groups as _rules_groups  # noqa: F401  (adds verbs to `rules`)
from lakerunner.cli.verbs import rules_suggest as _rules_suggest  # noqa: F401  (adds a verb to `rules`)
from lakerunner.ops.roles import CANARY_ROLES, DEMO_ROLES, ROLES, ROLES_BY_SIGNAL
from lakerunner.runtime.exit_code import EXIT_MISUSE

app = typer.Typer(
    name="lakerunner",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A telemetry lake: logs, metrics and traces as open Parquet in your own bucket. "
    "`lakerunner serve` runs everything on one machine.",
    epilog="Every setting can be given as --set NAME=VALUE, in a YAML file, or as the variable LAKERUNNER_NAME: "
    "see `lakerunner config show`. Exit codes: 0 success, 1 failure, 2 misuse.",
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"lakerunner {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_MISUSE)


_DEPLOYMENT = (
    deployment.serve, demo.demo, deployment.migrate, deployment.status, deployment.doctor, deployment.warm,
    simulate.simulate, sweep.sweep,
)  # fmt: skip
for _function in _DEPLOYMENT:
    app.command(rich_help_panel="Deployment")(_function)
for _role in (*ROLES, *ROLES_BY_SIGNAL, *CANARY_ROLES, *DEMO_ROLES):
    if _role.name not in ("ingest", "delete"):  # nouns too, which run the role when no verb follows
        app.command(_role.name, rich_help_panel="Single roles")(role_command(_role))
for _noun in (bus, config, delete, ingest, key, org, profile, query, rules, spark):
    app.add_typer(_noun.app, name=_noun.__name__.rpartition(".")[2], rich_help_panel="Nouns")


def main() -> None:
    # Everything that we create is private: databases, buckets, caches and logs hold telemetry.
    os.umask(0o077)
    app()


if __name__ == "__main__":
    main()
